#include "divisi/net/ucx_transport.h"

#include "divisi/core/random.h"
#include "divisi/net/link_transport.h"
#include "divisi/net/peer_memory.h"
#include "divisi/net/ucx_link.h"

namespace divisi {

Result<std::unique_ptr<Transport>> OpenUcxTransport(const TransportOptions& options,
                                                    const Clock& clock) {
  ASSIGN_OR_RETURN(std::unique_ptr<Link> link, OpenUcxLink(options));
  // Shared, since functions are copied.
  auto read = [reader = std::make_shared<PeerReader>()](const PeerMemory& peer, uint64_t address,
                                                        std::byte* to, size_t bytes) {
    return reader->Read(peer, address, to, bytes);
  };
  return MakeLinkTransport(options, clock, {std::move(link), SystemRandom(), std::move(read)});
}

}  // namespace divisi
