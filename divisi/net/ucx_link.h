// The Link over UCX. All that is UCX's own lies in ucx_link.cc.
//
// Bytes travel as active messages with rendezvous, not as puts: without RDMA hardware UCX 1.13
// makes a put of small fragments that are copied twice (bench/RESULTS.md), while a rendezvous moves
// the bytes straight to where Place says. The receiver drives it, so that closing a connection
// there is a fence. With RDMA hardware a rendezvous is a read by the receiver's card, also without
// a copy. Source: UCX 1.13 documentation of ucp_am_send_nbx and ucp_am_recv_data_nbx.
#pragma once

#include "divisi/net/link.h"
#include "divisi/net/transport.h"

namespace divisi {

// Errors: those of OpenUcxTransport.
Result<std::unique_ptr<Link>> OpenUcxLink(const TransportOptions& options);

}  // namespace divisi
