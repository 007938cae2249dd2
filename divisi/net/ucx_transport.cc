#include "divisi/net/ucx_transport.h"

#include "divisi/net/link_transport.h"
#include "divisi/net/peer_memory.h"
#include "divisi/net/ucx_link.h"

namespace divisi {

Result<std::unique_ptr<Transport>> OpenUcxTransport(const TransportOptions& options,
                                                    const Clock& clock) {
  ASSIGN_OR_RETURN(std::unique_ptr<Link> link, OpenUcxLink(options));
  const auto seed = static_cast<uint64_t>(UnixSeconds() * 1e9);
  return MakeLinkTransport(options, clock, {std::move(link), seed, ReadPeerMemory});
}

}  // namespace divisi
