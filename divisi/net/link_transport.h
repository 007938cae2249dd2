// The Transport over a Link: it moves the messages of DataOwner (connections of others to us) and
// DataWriter (ours to others), which decide. The same code runs over UCX and over the modelled
// link.
#pragma once

#include <memory>

#include "divisi/core/clock.h"
#include "divisi/net/data_owner.h"
#include "divisi/net/link.h"
#include "divisi/net/transport.h"

namespace divisi {

struct LinkTransportParts {
  std::unique_ptr<Link> link;
  uint64_t seed = 0;     // Of keys of regions: nobody's guess, and another in each life.
  DataOwner::Read read;  // Of writers' memory.
};

// `clock` must outlive it.
std::unique_ptr<Transport> MakeLinkTransport(const TransportOptions& options, const Clock& clock,
                                             LinkTransportParts parts);

}  // namespace divisi
