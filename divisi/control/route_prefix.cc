#include "divisi/control/route_prefix.h"

#include <algorithm>
#include <utility>

namespace divisi {

std::vector<BlockKey> SharedPromptKeys(KeySpace space, const Request& request) {
  std::vector<BlockKey> keys;
  // Prompts that are scored compute all of it.
  if (request.prompt.empty() || request.prompt_logprobs >= 0) return keys;
  space.tenant_salt = request.cache_salt;
  ExtendKeys(RootKey(space), request.prompt, (request.prompt.size() - 1) / kBlockTokens, keys);
  return keys;
}

PagesFound PagesThere(const PagesFound& shown, const PagesFound& found) {
  PagesFound there{};
  int64_t before = 0, found_by = 0;
  for (size_t t = 0; t < there.size(); ++t) {
    found_by += found[t];
    there[t] = std::clamp<int64_t>(found_by - before, 0, shown[t]);
    before += shown[t];
  }
  return there;
}

std::vector<RoutePrefix> RoutePrefixes(PageDirectory& directory, std::span<const BlockKey> keys,
                                       std::span<const PrefixHolder> holders, Seconds now) {
  std::vector<HolderMatch> matches = directory.Find(keys, now);
  std::ranges::sort(matches, {}, &HolderMatch::holder);
  const auto match_of = [&](NodeId holder) {
    const auto at = std::ranges::lower_bound(matches, holder, {}, &HolderMatch::holder);
    return at != matches.end() && at->holder == holder ? *at : HolderMatch{};
  };
  const int32_t pooled = match_of(kPoolHolder).pages.back();
  std::vector<RoutePrefix> prefixes;
  for (const PrefixHolder& holder : holders) {
    HolderMatch match = match_of(holder.node);
    int32_t& any = match.pages.back();
    if (holder.pool) any = std::max(any, pooled);
    RoutePrefix& prefix = prefixes.emplace_back();
    for (size_t tier = 0; tier < match.pages.size(); ++tier) {
      prefix.tokens[tier] = int64_t{match.pages[tier]} * kBlockTokens;
      prefix.odds[tier] = directory.Odds(holder.node, static_cast<Tier>(tier));
    }
    prefix.promised = int64_t{std::max(any, match.promised)} * kBlockTokens;
  }
  return prefixes;
}

void FindPeers(const PageDirectory& directory, std::span<const PeerHolder> holders,
               std::span<RoutePrefix> prefixes) {
  constexpr auto kHost = static_cast<size_t>(Tier::kHost);
  constexpr auto kDisk = static_cast<size_t>(Tier::kDisk);
  // The one that has most, of like ones that with the least to send; and for itself the next.
  const size_t none = holders.size();
  size_t best = none, second = none;
  const auto before = [&](size_t a, size_t b) {
    if (b == none) return true;
    const int64_t more = prefixes[a].tokens[kHost] - prefixes[b].tokens[kHost];
    return more > 0 || (more == 0 && holders[a].link.under_way < holders[b].link.under_way);
  };
  for (size_t i = 0; i < holders.size(); ++i) {
    if (!holders[i].gives || prefixes[i].tokens[kHost] == 0) continue;
    if (before(i, best)) {
      second = std::exchange(best, i);
    } else if (before(i, second)) {
      second = i;
    }
  }
  for (size_t i = 0; i < holders.size(); ++i) {
    const size_t peer = i == best ? second : best;
    prefixes[i].peer = {};
    if (!holders[i].reads || peer == none) continue;
    const int64_t tokens = prefixes[peer].tokens[kHost];
    if (tokens <= prefixes[i].tokens[kDisk]) continue;
    prefixes[i].peer = {.node = holders[peer].node,
                        .tokens = tokens,
                        .odds = directory.Odds(holders[peer].node, Tier::kPeer),
                        .link = holders[peer].link};
  }
}

}  // namespace divisi
