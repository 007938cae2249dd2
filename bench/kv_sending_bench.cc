// How a prompt's KV is best sent while it is computed: whole pages after each chunk, the same in
// pieces, or each layer's part of a chunk's pages as soon as that layer is computed. Between two
// processes of this machine, of the 0.6B shape, over the real transport; the computing itself is a
// wait at a given rate, as on an accelerator.
//   kv_sending_bench [--tiny] [--network] [--rounds R]
// What counts is what remains: from the end of the last layer until the last write is reported.
// Beside it the arithmetic of section 9.3 (plan/activation_transfer.h): n messages of V bytes in
// all take n alpha + V / B, with alpha and B of this run, by messages of two sizes; a chunk's (or
// layer's) messages wait for those before them.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "divisi/core/clock.h"
#include "divisi/core/huge_memory.h"
#include "divisi/net/ucx_transport.h"
#include "divisi/plan/activation_transfer.h"

namespace divisi {
namespace {

constexpr int64_t kLayers = 28;
constexpr int64_t kPieces = 2 * kLayers;               // K and V of each layer.
constexpr int64_t kLayerBytes = 8 * 128 * 2 * 2 * 16;  // Of a page: heads x channels x K, V x bf16.
constexpr int64_t kPageBytes = kLayers * kLayerBytes;
constexpr int64_t kPageTokens = 16;
constexpr int64_t kChunkTokens = 512;
constexpr int64_t kRegion = int64_t{512} << 20;

enum class Way { kPages, kPieces, kLayers };
constexpr const char* kWayNames[] = {"pages", "pages in 56", "layers"};

struct Prompt {
  int64_t tokens;
  double tokens_per_second;  // Of the computing.

  int64_t Chunks() const { return (tokens + kChunkTokens - 1) / kChunkTokens; }
  int64_t ChunkPages() const { return std::min(tokens, kChunkTokens) / kPageTokens; }
  Seconds ChunkTime() const {
    return Seconds(static_cast<double>(std::min(tokens, kChunkTokens)) / tokens_per_second);
  }
};

struct Outcome {
  Seconds remains;
  Seconds processor;  // Of the sender.
};

HugeMemory Memory() {
  auto memory = HugeMemory::Reserve(Bytes(kRegion), "the benchmark").value();
  std::memset(memory.data(), 1, kRegion);
  return memory;
}

struct Greeting {
  char address[64];
  char descriptor[kRegionDescriptorBytes];
};

[[noreturn]] void RunOwner(int out, bool network) {
  const SteadyClock clock;
  const HugeMemory memory = Memory();
  auto transport = OpenUcxTransport({.self = {2}, .read_peers = !network}, clock).value();
  const auto region = transport->Register({memory.data(), size_t{kRegion}}).value();
  Greeting greeting{};
  std::snprintf(greeting.address, sizeof(greeting.address), "%s", transport->address().c_str());
  std::memcpy(greeting.descriptor, EncodeRegion(region).data(), kRegionDescriptorBytes);
  CHECK(write(out, &greeting, sizeof(greeting)) == sizeof(greeting));
  for (;;) (void)WaitForEvents(*transport, Seconds(1));
}

Seconds ProcessorTime() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return Seconds(seconds(usage.ru_utime) + seconds(usage.ru_stime));
}

class Sender {
 public:
  Sender(const Greeting& greeting, bool network)
      : memory_(Memory()),
        transport_(OpenUcxTransport({.self = {1}, .read_peers = !network}, clock_).value()),
        region_(DecodeRegion({greeting.descriptor, kRegionDescriptorBytes}).value()) {
    (void)transport_->Register({memory_.data(), size_t{kRegion}}).value();
    CHECK(transport_->Connect(region_, greeting.address).ok());
    (void)Burst(8, kPageBytes);  // Connects.
  }

  // `count` messages at once.
  Seconds Burst(int64_t count, int64_t bytes) {
    const Seconds start = clock_.Now();
    for (int64_t i = 0; i < count; ++i) Write(Next(bytes), bytes);
    while (ended_ < begun_) Work(Seconds(1));
    return clock_.Now() - start;
  }

  Outcome Send(const Prompt& prompt, Way way) {
    const Seconds processor = ProcessorTime();
    Seconds computed = clock_.Now();
    for (int64_t chunk = 0; chunk < prompt.Chunks(); ++chunk) {
      const int64_t first = Next(prompt.ChunkPages() * kPageBytes);
      for (int64_t layer = 0; layer < kLayers; ++layer) {
        computed += prompt.ChunkTime() / static_cast<double>(kLayers);
        while (clock_.Now() < computed) Work(computed - clock_.Now());
        if (way == Way::kLayers) {
          SendEach(first + layer * kLayerBytes, prompt.ChunkPages(), kPageBytes, kLayerBytes);
        }
      }
      if (way == Way::kPages) SendEach(first, prompt.ChunkPages(), kPageBytes, kPageBytes);
      if (way == Way::kPieces) {
        constexpr int64_t kPiece = kPageBytes / kPieces;
        SendEach(first, prompt.ChunkPages() * kPieces, kPiece, kPiece);
      }
    }
    while (ended_ < begun_) Work(Seconds(1));
    return {clock_.Now() - computed, ProcessorTime() - processor};
  }

 private:
  int64_t Next(int64_t bytes) {
    if (at_ + bytes > kRegion) at_ = 0;
    at_ += bytes;
    return at_ - bytes;
  }
  void SendEach(int64_t at, int64_t count, int64_t stride, int64_t bytes) {
    for (int64_t i = 0; i < count; ++i) Write(at + i * stride, bytes);
  }
  void Write(int64_t at, int64_t bytes) {
    while (begun_ - ended_ >= kMaxPendingWrites) Work(Seconds(1));
    const std::span<const std::byte> local(memory_.data() + at, static_cast<size_t>(bytes));
    CHECK(transport_->Write({region_.owner, local, Bytes(at), 0}).ok());
    ++begun_;
  }
  void Work(Seconds most) {
    for (const TransportEvent& event : WaitForEvents(*transport_, most)) {
      CHECK(event.ok, "{}", event.reason);
      ended_ += event.kind == TransportEvent::Kind::kWritten;
    }
  }

  SteadyClock clock_;
  HugeMemory memory_;
  std::unique_ptr<Transport> transport_;
  RegionDescriptor region_;
  int64_t at_ = 0, begun_ = 0, ended_ = 0;
};

template <typename Value>
Value Median(std::vector<Value> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// alpha and B by messages of two sizes: n1 (alpha + s1 / B) = t1, n2 (alpha + s2 / B) = t2.
TransferLink Measure(Sender& sender, int64_t pages, int rounds) {
  std::vector<Seconds> whole, small;
  for (int i = 0; i < rounds; ++i) {
    whole.push_back(sender.Burst(pages, kPageBytes) / static_cast<double>(pages));
    small.push_back(sender.Burst(pages * kPieces, kPageBytes / kPieces) /
                    static_cast<double>(pages * kPieces));
  }
  const double difference = static_cast<double>(kPageBytes - kPageBytes / kPieces);
  const Seconds page = Median(whole), piece = Median(small);
  const double per_byte = (page - piece).value / difference;
  return {BytesPerSecond(1 / per_byte),
          Seconds(std::max(0.0, piece.value - per_byte * (kPageBytes / kPieces)))};
}

Seconds Arithmetic(const Prompt& prompt, Way way, const TransferLink& link) {
  const bool layers = way == Way::kLayers;
  const double parts = layers ? static_cast<double>(kLayers) : 1;
  const auto pages = static_cast<double>(prompt.ChunkPages());
  const SerialTransfers each{
      .payload = Bytes(prompt.ChunkPages() * kPageBytes / static_cast<int64_t>(parts)),
      .launches = pages * (way == Way::kPieces ? static_cast<double>(kPieces) : 1)};
  Seconds remains;
  for (int64_t i = 0; i < prompt.Chunks() * static_cast<int64_t>(parts); ++i) {
    remains = std::max(Seconds(0), remains - prompt.ChunkTime() / parts) + each.Total(link);
  }
  return remains;
}

void Compare(Sender& sender, const Prompt& prompt, const TransferLink& link, int rounds) {
  std::vector<Seconds> remains[3], processor[3];
  for (int round = 0; round < rounds; ++round) {
    for (const Way way : {Way::kPages, Way::kPieces, Way::kLayers}) {  // In turns.
      const Outcome outcome = sender.Send(prompt, way);
      remains[static_cast<size_t>(way)].push_back(outcome.remains);
      processor[static_cast<size_t>(way)].push_back(outcome.processor);
    }
  }
  for (const Way way : {Way::kPages, Way::kPieces, Way::kLayers}) {
    const auto i = static_cast<size_t>(way);
    const int64_t messages = prompt.tokens / kPageTokens *
                             (way == Way::kPages    ? 1
                              : way == Way::kPieces ? kPieces
                                                    : kLayers);
    const Seconds median = Median(remains[i]);
    const Seconds total = prompt.ChunkTime() * static_cast<double>(prompt.Chunks());
    std::printf(
        "%6lld tokens at %6.0f/s  %-11s %6lld messages  remain %8.3f ms  arithmetic "
        "%8.3f ms  of TTFT %5.2f %%  sender %7.1f ms\n",
        static_cast<long long>(prompt.tokens), prompt.tokens_per_second, kWayNames[i],
        static_cast<long long>(messages), 1e3 * median.value,
        1e3 * Arithmetic(prompt, way, link).value, 100 * median.value / (total + median).value,
        1e3 * Median(processor[i]).value);
    std::fflush(stdout);
  }
}

void Run(bool network, bool tiny, int rounds) {
  int ends[2];
  CHECK(pipe(ends) == 0);
  const pid_t owner = fork();
  if (owner == 0) RunOwner(ends[1], network);
  Greeting greeting{};
  CHECK(read(ends[0], &greeting, sizeof(greeting)) == sizeof(greeting));
  {
    Sender sender(greeting, network);
    const TransferLink link = Measure(sender, tiny ? 1 : 64, rounds);
    std::printf("%s: alpha %.1f us, B %.2f GB/s\n", network ? "network" : "same host",
                1e6 * link.launch.value, 1e-9 * link.bandwidth.value);
    for (const double rate : {2000.0, 20000.0}) {
      for (const int64_t tokens : {128, 2048, 8192}) {
        if (tiny && (tokens > 128 || rate < 20000)) continue;
        Compare(sender, {tokens, rate}, link, rounds);
      }
    }
  }
  kill(owner, SIGKILL);
  waitpid(owner, nullptr, 0);
}

}  // namespace
}  // namespace divisi

int main(int argc, char** argv) {
  bool tiny = false, network = false;
  int rounds = 7;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--tiny") tiny = true, rounds = 1;
    if (name == "--network") network = true;
    if (name == "--rounds" && i + 1 < argc) rounds = std::atoi(argv[i + 1]);
  }
  divisi::Run(network, tiny, std::max(1, rounds));
  return 0;
}
