// A network within one process, modelled: processes that open a transport on it are connected by
// links of a latency and a bandwidth, on the caller's clock. The production state machines run over
// it (link_transport.h), so that tests can break, delay and stop what a real network does, at the
// same step in every run of a seed.
//
// The model. Each direction of a connection sends one message after another at the bandwidth; each
// arrives `latency` and a drawn part of `jitter` after its last byte. A connection is reliable
// until it breaks. What was on its way when a sender closed or died may still arrive, and the
// message that was being sent is torn: a drawn part of its bytes lands. A receiver that closes lets
// nothing land. Answers may arrive twice. Bytes are copied when they are sent.
//
// Threads: one, for the network and everything opened on it. It must outlive them.
#pragma once

#include <memory>

#include "divisi/core/clock.h"
#include "divisi/net/transport.h"

namespace divisi {

struct MemoryNetworkOptions {
  Seconds latency{20e-6};
  Seconds jitter{0};
  BytesPerSecond bandwidth{10e9};
  // What was on its way when its sender closed comes up to this much later, as from a socket's
  // buffer.
  Seconds linger{0};
  double break_chance = 0;   // That a connection breaks with a message.
  double repeat_chance = 0;  // That an answer arrives twice.
  uint64_t seed = 1;
};

class MemoryNetwork {
 public:
  MemoryNetwork(const MemoryNetworkOptions& options, const Clock& clock);
  ~MemoryNetwork();

  // `listen` is any text; it is the address. Errors: kUnavailable for one that is taken.
  Result<std::unique_ptr<Transport>> Open(const TransportOptions& options);

  // The process ends without a word: its connections break at the others after `latency`. Its
  // Transport does nothing any more, and its address is free.
  void Kill(NodeId node);
  // While stopped, a process neither does anything nor hears; what is sent to it waits.
  void Stop(NodeId node, bool stopped);
  // Nothing passes between the two, and neither learns of it. What is sent meanwhile is lost, and
  // so is the connection.
  void Cut(NodeId a, NodeId b, bool cut);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace divisi
