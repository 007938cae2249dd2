#include "divisi/net/peer_memory.h"

#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace divisi {
namespace {

// Of one call: the kernel's limit on what one reads or writes is 2 GiB.
constexpr size_t kMaxRead = size_t{1} << 30;
// Two threads take pieces of this size in turns: some 30 us each, several waits of one for the
// other. Less than two of them are left to one thread.
constexpr size_t kPiece = size_t{256} << 10;

}  // namespace

PeerMemory OwnMemory(const uint64_t* proof) {
  (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // Fails where Yama is absent: then all is well.
  return {static_cast<uint64_t>(getpid()), reinterpret_cast<uintptr_t>(proof), *proof};
}

bool ReadPeerMemory(const PeerMemory& peer, uint64_t address, std::byte* to, size_t bytes) {
  if (peer.pid == 0 || peer.proof == 0) return false;
  do {
    const size_t part = bytes < kMaxRead ? bytes : kMaxRead;
    uint64_t proof = 0;
    // The proof last: what it proves was read before.
    const iovec local[] = {{to, part}, {&proof, sizeof(proof)}};
    const iovec remote[] = {{reinterpret_cast<void*>(address), part},
                            {reinterpret_cast<void*>(peer.proof_address), sizeof(proof)}};
    const int skip = part == 0 ? 1 : 0;
    const ssize_t got = process_vm_readv(static_cast<pid_t>(peer.pid), local + skip, 2 - skip,
                                         remote + skip, 2 - skip, 0);
    if (got != static_cast<ssize_t>(part + sizeof(proof)) || proof != peer.proof) return false;
    address += part;
    to += part;
    bytes -= part;
  } while (bytes > 0);
  return true;
}

bool PeerReader::Read(const PeerMemory& peer, uint64_t address, std::byte* to, size_t bytes) {
  if (bytes < 2 * kPiece) return ReadPeerMemory(peer, address, to, bytes);
  if (!threads_) threads_ = std::make_unique<ThreadPool>(2);
  std::atomic<bool> whole = true;
  threads_->Run(static_cast<int64_t>((bytes + kPiece - 1) / kPiece), [&](int64_t piece, int) {
    const size_t at = static_cast<size_t>(piece) * kPiece;
    if (!ReadPeerMemory(peer, address + at, to + at, std::min(kPiece, bytes - at))) whole = false;
  });
  return whole;
}

}  // namespace divisi
