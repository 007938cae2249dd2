// How much of a prompt's prefix workers have, by a directory of pages.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "divisi/control/handoff.h"
#include "divisi/control/route_choice.h"
#include "divisi/core/ids.h"
#include "divisi/engine/request.h"
#include "divisi/kv/block_key.h"
#include "divisi/kv/page_directory.h"

namespace divisi {

// All stores of the remote pool together, as one holder in a PageDirectory.
inline constexpr NodeId kPoolHolder{~uint64_t{0}};

// Keys of the pages of a request's prompt that it can share: full ones, without the last token,
// which is always computed. Time in proportion to the prompt: not under a lock.
// space: without a salt, which is the request's.
std::vector<BlockKey> SharedPromptKeys(KeySpace space, const Request& request);

struct PrefixHolder {
  NodeId node;
  bool pool = false;  // It can have what the pool holds
};

// What each of `holders` has of the chain `keys`, in their order; of strangers nothing. One search
// for all of them.
std::vector<RoutePrefix> RoutePrefixes(PageDirectory& directory, std::span<const BlockKey> keys,
                                       std::span<const PrefixHolder> holders, Seconds now);

// Who reads the others' host memory is told the one that has most of it, where that is more than
// its own tiers have.
struct PeerHolder {
  NodeId node;
  bool reads = false;  // It reads others'
  bool gives = false;  // Others read its
  SharedLink link;     // As of RoutePrefix::Peer
};
// holders, prefixes: in one order.
void FindPeers(const PageDirectory& directory, std::span<const PeerHolder> holders,
               std::span<RoutePrefix> prefixes);

// Of pages that were shown in each tier, those that were there: found in that tier or a faster one,
// and not counted for a faster tier's. [t]: Tier t.
PagesFound PagesThere(const PagesFound& shown, const PagesFound& found);

}  // namespace divisi
