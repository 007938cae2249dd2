// Preloaded into ucx_perftest by bench/transport.sh: its messages go round buffers of 512 MiB, on
// both sides, as pages of KV do, instead of one buffer of a message's size that caches keep. Active
// and tagged messages alone: a put's target is what the other side has registered.
#include <dlfcn.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

constexpr size_t kRing = size_t{512} << 20;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLeast = size_t{64} << 10;  // Smaller ones are perftest's own words.

char* Ring() {
  void* const memory =
      mmap(nullptr, kRing + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  const auto at = (reinterpret_cast<uintptr_t>(memory) + kHugePage - 1) & ~(kHugePage - 1);
  auto* const ring = reinterpret_cast<char*>(at);
  (void)madvise(ring, kRing, MADV_HUGEPAGE);
  std::memset(ring, 1, kRing);
  return ring;
}

void* Next(void* own, size_t bytes) {
  static char* const ring = Ring();
  static size_t at = 0;
  if (ring == nullptr || bytes < kLeast || bytes > kRing) return own;
  if (at + bytes > kRing) at = 0;
  at += bytes;
  return ring + at - bytes;
}

template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// As in ucp/api/ucp.h of UCX 1.13, without its types.
extern "C" {

void* ucp_am_send_nbx(void* to, unsigned id, const void* header, size_t header_bytes, void* data,
                      size_t bytes, const void* options) {
  static auto* const real = Real<decltype(ucp_am_send_nbx)>("ucp_am_send_nbx");
  return real(to, id, header, header_bytes, Next(data, bytes), bytes, options);
}

void* ucp_am_recv_data_nbx(void* worker, void* message, void* data, size_t bytes,
                           const void* options) {
  static auto* const real = Real<decltype(ucp_am_recv_data_nbx)>("ucp_am_recv_data_nbx");
  return real(worker, message, Next(data, bytes), bytes, options);
}

void* ucp_tag_send_nbx(void* to, void* data, size_t bytes, uint64_t tag, const void* options) {
  static auto* const real = Real<decltype(ucp_tag_send_nbx)>("ucp_tag_send_nbx");
  return real(to, Next(data, bytes), bytes, tag, options);
}

void* ucp_tag_recv_nbx(void* worker, void* data, size_t bytes, uint64_t tag, uint64_t mask,
                       const void* options) {
  static auto* const real = Real<decltype(ucp_tag_recv_nbx)>("ucp_tag_recv_nbx");
  return real(worker, Next(data, bytes), bytes, tag, mask, options);
}

}  // extern "C"
