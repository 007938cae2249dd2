// The Transport over a Link: it moves the messages of DataOwner (connections of others to us) and
// DataWriter (ours to others), which decide. The same code runs over UCX and over the modelled
// link.
#pragma once

#include <memory>

#include "divisi/core/clock.h"
#include "divisi/net/link.h"
#include "divisi/net/transport.h"

namespace divisi {

// `clock` must outlive it. `seed`: of the keys of regions; another in each life of a process.
std::unique_ptr<Transport> MakeLinkTransport(const TransportOptions& options, uint64_t seed,
                                             const Clock& clock, std::unique_ptr<Link> link);

}  // namespace divisi
