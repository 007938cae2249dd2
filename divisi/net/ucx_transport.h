// The Transport between processes and hosts, over UCX: RDMA or TCP, whichever UCX finds between the
// two (UCX_TLS and UCX_NET_DEVICES choose). UCX gives connections that notice a dead peer no shared
// memory, so between processes of one host the owner reads the writer's memory (peer_memory.h).
//
// The owner of a region takes part in every write (data_message.h): it checks key and range, has
// the bytes placed, and answers. So its program must poll, a mistaken writer can't reach other
// memory, and closing a connection at the owner is a certain fence.
//
// Who may write: who names this life of the process and the key of a region, which the control
// connection alone tells (region.h). That keeps mistakes and the curious out, not an attacker: UCX
// neither encrypts nor authenticates, its TCP puts write to whatever address they name, and it
// opens ports of its own on every device that UCX_NET_DEVICES allows (where we listen on loopback,
// on loopback alone). So keep the data network apart from clients. A peer's death is seen when its
// sockets close (a killed process) or after `silence` (a lost host).
//
// Source: UCX 1.13, docs "Client-server" and "Error handling mode peer".
#pragma once

#include <memory>

#include "divisi/core/clock.h"
#include "divisi/net/transport.h"

namespace divisi {

// `clock` must outlive the transport.
// Errors: kInvalidArgument for an address that can't be listened on, or a wildcard without
// `advertise`; kUnavailable for a taken port, or where UCX can't start.
Result<std::unique_ptr<Transport>> OpenUcxTransport(const TransportOptions& options,
                                                    const Clock& clock);

}  // namespace divisi
