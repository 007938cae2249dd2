// Reading the memory of another process of this host: how an owner takes a writer's bytes where
// both share a machine, in one copy and without the network (Linux: process_vm_readv). UCX does the
// same in its "cma" transport, but not on connections that notice a dead peer, which ours must.
//
// A number proves that the process is the one that is meant: the writer says where in its memory it
// lies, and every read fetches it again. So another host's process of the same pid, a container's,
// or the next process under a dead one's pid is not mistaken for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "divisi/core/thread_pool.h"

namespace divisi {

struct PeerMemory {
  uint64_t pid = 0;  // 0: nobody's.
  uint64_t proof_address = 0;
  uint64_t proof = 0;
  friend bool operator==(const PeerMemory&, const PeerMemory&) = default;
};

// This process's, with *proof as the number, and lets processes of the same user read it (where the
// system restricts that, Yama's ptrace_scope).
PeerMemory OwnMemory(const uint64_t* proof);

// Copies [address, address + bytes) of the peer to `to`. False, with any part of it copied, where
// the peer is gone, is another, or may not be read. With no bytes: whether it can be read at all.
bool ReadPeerMemory(const PeerMemory& peer, uint64_t address, std::byte* to, size_t bytes);

// ReadPeerMemory by two threads, from a page of KV on: one waits for memory more than it copies,
// two move large buffers a third faster (bench/RESULTS.md). The second thread begins with the first
// such read. One Read at a time.
class PeerReader {
 public:
  bool Read(const PeerMemory& peer, uint64_t address, std::byte* to, size_t bytes);

 private:
  std::unique_ptr<ThreadPool> threads_;
};

}  // namespace divisi
