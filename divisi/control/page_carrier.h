// Carries whole KV pages of this worker's memory into that of others, one-sided, over a Transport
// that a thread of its own runs: what others write arrives while a step computes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "divisi/control/worker.h"
#include "divisi/core/log.h"
#include "divisi/core/units.h"
#include "divisi/net/transport.h"

namespace divisi {

class PageCarrier {
 public:
  struct Done {
    uint64_t write = 0;
    bool ok = false;
  };
  virtual ~PageCarrier() = default;
  // How others reach this memory; empty where they cannot.
  virtual std::string address() const = 0;
  virtual std::vector<std::byte> descriptor() const = 0;
  virtual void AddPeer(NodeId node, const std::string& address,
                       std::span<const std::byte> descriptor) = 0;
  // Bars the peer for good, and answers at once. True: no write from it lands any more. False: some
  // still may; ask again: `wake` is called once the answer is another.
  virtual bool RemovePeer(NodeId node) = 0;
  // Begins a write; Poll answers it. With false: it did not happen, and will not: the answer comes
  // once the peer was reached anew or removed, since until then a failed write may still land.
  virtual void Write(const PageWrite& write) = 0;
  virtual std::vector<Done> Poll() = 0;
};

// memory: of all pages, `page` bytes each, in the order of their numbers; outlives the result.
// wake: called from the carrier's thread when Poll has something, or a removed peer is fenced.
// Errors: those of Transport::Register.
Result<std::unique_ptr<PageCarrier>> MakePageCarrier(std::unique_ptr<Transport> transport,
                                                     std::span<std::byte> memory, Bytes page,
                                                     std::function<void()> wake);

}  // namespace divisi
