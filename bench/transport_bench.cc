// The bandwidth of KV pages between two processes of this machine, memory to memory or, with
// --network, over what UCX_TLS allows (bench/transport.sh runs it beside ucx_perftest).
//   transport_bench [--tiny] [--network] [--carrier]
//                   [--message BYTES --count N --rounds R --region BYTES]
// A round is one prompt: `count` writes begun at once, until the last is reported: of a Transport,
// or, with --carrier, of a PageCarrier with its thread, as workers have it. Local and remote
// buffers go round regions of 512 MiB, or what one round needs, so that caches hold little of them.
// Without a message size: the pages of the 0.6B shape (1.75 MiB) of prompts of 128 to 8k tokens.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "divisi/control/page_carrier.h"
#include "divisi/core/clock.h"
#include "divisi/core/huge_memory.h"
#include "divisi/net/ucx_transport.h"

namespace divisi {
namespace {

constexpr int64_t kMiB = 1 << 20;

struct Case {
  int64_t message;
  int64_t count;
  int rounds;
  int64_t region;        // Bytes on either side.
  bool network = false;  // Also on one host.
  bool carrier = false;  // By PageCarriers.
};

HugeMemory Memory(int64_t bytes) {
  auto memory = HugeMemory::Reserve(Bytes(bytes), "the benchmark").value();
  std::memset(memory.data(), 1, static_cast<size_t>(bytes));
  return memory;
}

// What the owner tells the writer, through a pipe.
struct Greeting {
  char address[64];
  char descriptor[kRegionDescriptorBytes];
};

void Greet(int out, const std::string& address, std::string_view descriptor) {
  Greeting greeting{};
  std::snprintf(greeting.address, sizeof(greeting.address), "%s", address.c_str());
  std::memcpy(greeting.descriptor, descriptor.data(), kRegionDescriptorBytes);
  CHECK(write(out, &greeting, sizeof(greeting)) == sizeof(greeting));
}

[[noreturn]] void RunOwner(int out, const Case& c) {
  const SteadyClock clock;
  const HugeMemory memory = Memory(c.region);
  const std::span<std::byte> bytes(memory.data(), static_cast<size_t>(c.region));
  auto transport = OpenUcxTransport({.self = {2}, .read_peers = !c.network}, clock).value();
  if (c.carrier) {
    const auto carrier =
        MakePageCarrier(std::move(transport), bytes, Bytes(c.message), [] {}).value();
    const auto descriptor = carrier->descriptor();
    Greet(out, carrier->address(),
          {reinterpret_cast<const char*>(descriptor.data()), descriptor.size()});
    for (;;) pause();
  }
  const auto region = transport->Register(bytes).value();
  Greet(out, transport->address(), EncodeRegion(region));
  for (;;) (void)WaitForEvents(*transport, Seconds(1));
}

class Writer {
 public:
  Writer(const Greeting& greeting, int64_t region)
      : memory_(Memory(region)), transport_(OpenUcxTransport({.self = {1}}, clock_).value()) {
    region_ = DecodeRegion({greeting.descriptor, kRegionDescriptorBytes}).value();
    (void)transport_->Register({memory_.data(), static_cast<size_t>(region)}).value();
    CHECK(transport_->Connect(region_, greeting.address).ok());
  }

  // Bytes per second of one round.
  double Round(const Case& c) {
    const Seconds start = clock_.Now();
    int64_t begun = 0, ended = 0;
    while (ended < c.count) {
      while (begun < c.count && begun - ended < kMaxPendingWrites) {
        Write(c.message);
        ++begun;
      }
      for (const TransportEvent& event : WaitForEvents(*transport_, Seconds(1))) {
        CHECK(event.ok, "{}", event.reason);
        ended += event.kind == TransportEvent::Kind::kWritten;
      }
    }
    return static_cast<double>(c.message * c.count) / (clock_.Now() - start).value;
  }

 private:
  void Write(int64_t bytes) {
    if (at_ + bytes > region_.size.value) at_ = 0;
    const std::span<const std::byte> local(memory_.data() + at_, static_cast<size_t>(bytes));
    CHECK(transport_->Write({region_.owner, local, Bytes(at_), 0}).ok());
    at_ += bytes;
  }

  SteadyClock clock_;
  HugeMemory memory_;
  std::unique_ptr<Transport> transport_;
  RegionDescriptor region_;
  int64_t at_ = 0;
};

// The same by PageCarriers: pages left with the carrier's thread, until all are answered.
class Carrying {
 public:
  Carrying(const Greeting& greeting, const Case& c)
      : memory_(Memory(c.region)), pages_(c.region / c.message) {
    carrier_ =
        MakePageCarrier(OpenUcxTransport({.self = {1}, .read_peers = !c.network}, clock_).value(),
                        {memory_.data(), static_cast<size_t>(c.region)}, Bytes(c.message),
                        [this] {
                          const std::lock_guard lock(mutex_);
                          rung_ = true;
                          bell_.notify_one();
                        })
            .value();
    const auto* descriptor = reinterpret_cast<const std::byte*>(greeting.descriptor);
    carrier_->AddPeer({2}, greeting.address, {descriptor, kRegionDescriptorBytes});
  }

  double Round(const Case& c) {
    const Seconds start = clock_.Now();
    for (int64_t i = 0; i < c.count; ++i, ++at_) {
      const auto page = static_cast<BlockId>(at_ % pages_);
      carrier_->Write(
          {.id = static_cast<uint64_t>(at_), .to = {2}, .from_page = page, .to_page = page});
    }
    for (int64_t ended = 0; ended < c.count;) {
      {
        std::unique_lock lock(mutex_);
        bell_.wait(lock, [this] { return rung_; });
        rung_ = false;
      }
      for (const PageCarrier::Done& done : carrier_->Poll()) {
        CHECK(done.ok);
        ++ended;
      }
    }
    return static_cast<double>(c.message * c.count) / (clock_.Now() - start).value;
  }

 private:
  SteadyClock clock_;
  HugeMemory memory_;
  const int64_t pages_;
  int64_t at_ = 0;
  std::mutex mutex_;
  std::condition_variable bell_;
  bool rung_ = false;
  std::unique_ptr<PageCarrier> carrier_;  // Last: its thread rings.
};

template <typename Sender>
std::vector<double> RatesOf(Sender&& sender, const Case& c) {
  Case first = c;
  first.count = std::min<int64_t>(c.count, 8);
  (void)sender.Round(first);  // Connects.
  std::vector<double> rates;
  for (int i = 0; i < c.rounds; ++i) rates.push_back(sender.Round(c));
  std::ranges::sort(rates);
  return rates;
}

void Run(const Case& c) {
  int ends[2];
  CHECK(pipe(ends) == 0);
  const pid_t owner = fork();
  if (owner == 0) RunOwner(ends[1], c);
  Greeting greeting{};
  CHECK(read(ends[0], &greeting, sizeof(greeting)) == sizeof(greeting));
  const std::vector<double> rates =
      c.carrier ? RatesOf(Carrying(greeting, c), c) : RatesOf(Writer(greeting, c.region), c);
  kill(owner, SIGKILL);
  waitpid(owner, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
  const auto at = [&rates](double part) {
    return rates[static_cast<size_t>(part * static_cast<double>(rates.size() - 1))] / 1e9;
  };
  std::printf(
      "%-9s %-9s %9lld B x %5lld  %8.3f GB/s median  %8.3f p10  %8.3f p90  %lld bytes/round\n",
      c.network ? "network" : "same-host", c.carrier ? "carrier" : "transport",
      static_cast<long long>(c.message), static_cast<long long>(c.count), at(0.5), at(0.1), at(0.9),
      static_cast<long long>(c.message * c.count));
  std::fflush(stdout);
}

}  // namespace
}  // namespace divisi

int main(int argc, char** argv) {
  using divisi::kMiB;
  constexpr int64_t kPage = 1835008;
  divisi::Case one{.message = 0, .count = 1, .rounds = 5, .region = 512 * kMiB};
  bool tiny = false;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--tiny") tiny = true;
    if (name == "--network") one.network = true;
    if (name == "--carrier") one.carrier = true;
    if (i + 1 == argc) break;
    if (name == "--message") one.message = std::atoll(argv[i + 1]);
    if (name == "--count") one.count = std::atoll(argv[i + 1]);
    if (name == "--rounds") one.rounds = std::atoi(argv[i + 1]);
    if (name == "--region") one.region = std::atoll(argv[i + 1]);
  }
  if (one.message > 0) {
    one.region = std::max(one.region, one.message);
    divisi::Run(one);
    return 0;
  }
  one.message = kPage;
  if (tiny) one.region = 16 * kMiB;
  one.rounds = tiny ? 2 : 11;
  for (const bool carrier : {false, true}) {
    for (const int64_t tokens : {128, 512, 2048, 8192}) {
      one.count = tokens / 16;
      one.carrier = carrier;
      if (!tiny || tokens == 128) divisi::Run(one);
    }
  }
  return 0;
}
