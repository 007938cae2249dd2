// The bandwidth of Transport::Write between two processes of this machine: memory to memory, or
// with
// --network over what UCX_TLS allows (bench/transport.sh runs it beside ucx_perftest).
//   transport_bench [--tiny] [--network] [--message BYTES --count N --rounds R --region BYTES]
// A round is one prompt: `count` writes begun at once, until the last is reported. Local and remote
// buffers go round regions of 512 MiB, or what one round needs, so that caches hold little of them.
// Without a message size: the pages of the 0.6B shape (1.75 MiB) of prompts of 128 to 8k tokens,
// and a page of 2.25 MiB as one message against 72.
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

namespace divisi {
namespace {

constexpr int64_t kMiB = 1 << 20;

struct Case {
  int64_t message;
  int64_t count;
  int rounds;
  int64_t region;  // Bytes on either side.
  bool network;    // Also on one host.
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

[[noreturn]] void RunOwner(int out, int64_t region, bool network) {
  const SteadyClock clock;
  const HugeMemory memory = Memory(region);
  auto transport = OpenUcxTransport({.self = {2}, .read_peers = !network}, clock).value();
  const auto registered = transport->Register({memory.data(), static_cast<size_t>(region)}).value();
  Greeting greeting{};
  std::snprintf(greeting.address, sizeof(greeting.address), "%s", transport->address().c_str());
  std::memcpy(greeting.descriptor, EncodeRegion(registered).data(), kRegionDescriptorBytes);
  CHECK(write(out, &greeting, sizeof(greeting)) == sizeof(greeting));
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

void Run(const Case& c) {
  int ends[2];
  CHECK(pipe(ends) == 0);
  const pid_t owner = fork();
  if (owner == 0) RunOwner(ends[1], c.region, c.network);
  Greeting greeting{};
  CHECK(read(ends[0], &greeting, sizeof(greeting)) == sizeof(greeting));
  std::vector<double> rates;
  {
    Writer writer(greeting, c.region);
    (void)writer.Round(
        {c.message, std::min<int64_t>(c.count, 8), 1, c.region, c.network});  // Connects.
    for (int i = 0; i < c.rounds; ++i) rates.push_back(writer.Round(c));
  }
  kill(owner, SIGKILL);
  waitpid(owner, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
  std::ranges::sort(rates);
  const auto at = [&rates](double part) {
    return rates[static_cast<size_t>(part * static_cast<double>(rates.size() - 1))] / 1e9;
  };
  std::printf("%-10s %9lld B x %5lld  %8.3f GB/s median  %8.3f p10  %8.3f p90  %lld bytes/round\n",
              c.network ? "network" : "same-host", static_cast<long long>(c.message),
              static_cast<long long>(c.count), at(0.5), at(0.1), at(0.9),
              static_cast<long long>(c.message * c.count));
  std::fflush(stdout);
}

}  // namespace
}  // namespace divisi

int main(int argc, char** argv) {
  using divisi::kMiB;
  divisi::Case one{0, 1, 5, 512 * kMiB, false};
  bool tiny = false;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--tiny") tiny = true;
    if (name == "--network") one.network = true;
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
  constexpr int64_t kPage = 1835008;
  const int64_t region = tiny ? 16 * kMiB : one.region;
  for (const int64_t tokens : {128, 512, 2048, 8192}) {
    if (!tiny || tokens == 128)
      divisi::Run({kPage, tokens / 16, tiny ? 2 : 11, region, one.network});
  }
  const int64_t pages = tiny ? 1 : 64;
  divisi::Run({72 * 32768, pages, tiny ? 2 : 11, region, one.network});
  divisi::Run({32768, 72 * pages, tiny ? 2 : 11, region, one.network});
  return 0;
}
