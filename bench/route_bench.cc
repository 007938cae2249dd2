// How many routing decisions one core makes: what 64 workers have of a prompt of 512 pages, looked
// up in a full directory, and the choice among them.
//   route_bench [--tiny]
// DIVISI_BENCH_PAGES: pages of the directory, 10 million for figures.
// Prompts come in turn, so that each one's entries are cold; their keys are given. Of each, four
// workers have it to differing depths in differing tiers, all have a common beginning of 32 pages.
// Times are the processor's: median, least and most of the rounds. Counted beside them, the same
// each time: pages that the directory looked at, and allocations.
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "divisi/control/dispatcher.h"
#include "divisi/control/route_prefix.h"
#include "divisi/core/check.h"
#include "divisi/core/format.h"

namespace {

int64_t allocations = 0;

}  // namespace

void* operator new(size_t size) {
  ++allocations;
  void* memory = std::malloc(size);
  CHECK(memory != nullptr);
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace divisi {
namespace {

constexpr int64_t kWorkers = 64;
constexpr int64_t kPromptPages = 512;
constexpr int64_t kCommonPages = 32;
constexpr Seconds kNow(1);

struct Size {
  int64_t pages, prompts, decisions;
  int rounds;
};

double CpuSeconds() {
  timespec now;
  CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// SplitMix64
BlockKey Key(uint64_t number) {
  BlockKey key;
  for (int i = 0; i < 4; ++i) {
    uint64_t word = (number * 4 + static_cast<uint64_t>(i) + 1) * 0x9e3779b97f4a7c15;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    word ^= word >> 31;
    std::memcpy(key.bytes.data() + 8 * i, &word, sizeof word);
  }
  return key;
}

NodeId Node(int64_t worker) { return {1 + static_cast<uint64_t>(worker)}; }

struct Site {
  explicit Site(const Size& size) : directory(NewDirectory(size.pages)) {
    std::vector<BlockKey> common;
    for (int64_t i = 0; i < kCommonPages; ++i) common.push_back(Key(static_cast<uint64_t>(i)));
    for (int64_t w = 0; w < kWorkers; ++w) {
      directory.Stored(Node(w), Tier::kDevice, common);
      holders.push_back({Node(w), true});
    }
    uint64_t next = 1000;
    for (int64_t p = 0; p < size.prompts; ++p) {
      std::vector<BlockKey>& keys = prompts.emplace_back(common);
      for (int64_t i = kCommonPages; i < kPromptPages; ++i) keys.push_back(Key(next++));
      const std::span<const BlockKey> rest = std::span(keys).subspan(kCommonPages);
      for (int64_t i = 0; i < 4; ++i) {
        const auto depth = static_cast<size_t>((i + 1) * std::ssize(rest) / 4);
        directory.Stored(Node((p * 4 + i * 17) % kWorkers), static_cast<Tier>(i % 3),
                         rest.first(depth));
      }
    }
    std::vector<BlockKey> filler(4096);
    for (int64_t batch = 0; directory.stats().pages < size.pages; ++batch) {
      for (BlockKey& key : filler) key = Key(uint64_t{1} << 40 | next++);
      const int64_t room = std::min<int64_t>(4096, size.pages - directory.stats().pages);
      directory.Stored(Node(batch % kWorkers), Tier::kDisk,
                       std::span(filler).first(static_cast<size_t>(room)));
    }
  }
  static PageDirectory NewDirectory(int64_t pages) {
    auto directory = PageDirectory::Create({.pages = pages});
    CHECK(directory.ok());
    for (int64_t w = 0; w < kWorkers; ++w) CHECK(directory->Join(Node(w)).ok());
    CHECK(directory->Join(kPoolHolder).ok());
    return *std::move(directory);
  }

  PageDirectory directory;
  std::vector<std::vector<BlockKey>> prompts;
  std::vector<PrefixHolder> holders;
};

std::vector<RouteWorker> Workers(bool apart) {
  std::vector<RouteWorker> workers;
  for (int64_t w = 0; w < kWorkers; ++w) {
    const WorkerRole role = !apart       ? WorkerRole::kReplica
                            : w % 2 == 0 ? WorkerRole::kPrefill
                                         : WorkerRole::kDecode;
    RouteWorker worker{.node = Node(w), .role = role, .requests = w % 7};
    worker.decoding = worker.requests;
    worker.queue = Seconds(1e-3 * static_cast<double>(w * 37 % 64));
    worker.rates.per_pair = Seconds(1e-9);
    workers.push_back(worker);
  }
  return workers;
}

struct Case {
  const char* name;
  bool apart;
  RouteRules rules;
};

std::vector<Case> Cases() {
  RouteRules rules{.estimate = {.bytes_per_token = Bytes(147456), .layers = 36}};
  RouteRules tail = rules;
  tail.estimate.quantile = 0.99;
  RouteRules total = rules;
  total.estimate.objective = RouteObjective::kTotal;
  total.estimate.arrivals = PerSecond(2);
  RouteRules cache = rules;
  cache.policy = RoutePolicy::kCacheFirst;
  return {{"64 replicas", false, rules},
          {"64 replicas, quantile 0.99", false, tail},
          {"64 replicas, total", false, total},
          {"64 replicas, cache-first", false, cache},
          {"32 prefill, 32 decode", true, rules}};
}

// One decision after another.
struct Deciding {
  Site& site;
  const Case& what;
  std::vector<RouteWorker> workers = Workers(what.apart);
  RouteTurns turns{};
  size_t next = 0;
  int64_t cached = 0;

  void Decide() {
    const std::vector<BlockKey>& keys = site.prompts[next++ % site.prompts.size()];
    const auto prefixes = RoutePrefixes(site.directory, keys, site.holders, kNow);
    for (size_t i = 0; i < workers.size(); ++i) workers[i].prefix = prefixes[i];
    const auto choice = ChooseRoute(kPromptPages * kBlockTokens + 256, workers, what.rules, turns);
    CHECK(choice.has_value());
    cached += choice->chosen.at.cached;
  }
};

// A request's way through the dispatcher until it is sent, and its end: with what is known of the
// workers, the promise of its pages, and the choice kept.
struct Dispatching {
  explicit Dispatching(Site& s)
      : site(s), dispatcher({1000}, {.keep_choices = true}, &s.directory) {
    for (int64_t w = 0; w < kWorkers; ++w) {
      dispatcher.AddWorker(Node(w), WorkerRole::kReplica,
                           {.page = Bytes(147456 * kBlockTokens), .pool = true, .layers = 36});
      dispatcher.Report(Node(w), {}, 100 * (w * 37 % 64), kNow);
    }
    request.prompt.assign(kPromptPages * kBlockTokens + 256, 7);
  }

  void Decide() {
    const auto number =
        dispatcher.Submit(request, kNow, site.prompts[next++ % site.prompts.size()]);
    CHECK(number.ok() && !dispatcher.TakeMessages().empty());
    cached += dispatcher.TakeChoices().front().choice.chosen.at.cached;
    dispatcher.Cancel(*number, kNow);
    dispatcher.TakeMessages();
  }

  Site& site;
  Dispatcher dispatcher;
  Request request;
  size_t next = 0;
  int64_t cached = 0;
};

template <typename Deciding>
void Measure(Site& site, const char* name, Deciding deciding, const Size& size) {
  std::vector<double> rates;
  const int64_t looked = site.directory.stats().looked_pages, allocated = allocations;
  for (int round = 0; round < size.rounds; ++round) {
    const double began = CpuSeconds();
    for (int64_t i = 0; i < size.decisions; ++i) deciding.Decide();
    rates.push_back(static_cast<double>(size.decisions) / (CpuSeconds() - began));
  }
  const auto decisions = static_cast<double>(size.decisions * size.rounds);
  const auto each = [&](int64_t count) { return static_cast<double>(count) / decisions; };
  const double looks = each(site.directory.stats().looked_pages - looked);
  const double allocs = each(allocations - allocated);
  std::ranges::sort(rates);
  std::fputs(Format("{:<28} {:>8.0f} decisions/s median {:>8.0f} least {:>8.0f} most {:>6.1f} "
                    "pages looked at {:>5.1f} allocations {:>6.0f} tokens cached\n",
                    name, rates[rates.size() / 2], rates.front(), rates.back(), looks, allocs,
                    each(deciding.cached))
                 .c_str(),
             stdout);
}

int Run(bool tiny) {
  const char* pages = std::getenv("DIVISI_BENCH_PAGES");
  Size size{.pages = pages == nullptr ? 1'000'000 : std::atoll(pages),
            .prompts = 1000,
            .decisions = 2000,
            .rounds = 9};
  if (tiny) size = {.pages = 20'000, .prompts = 8, .decisions = 20, .rounds = 2};
  Site site(size);
  std::printf("%lld pages, %lld workers, prompts of %lld pages\n",
              static_cast<long long>(site.directory.stats().pages),
              static_cast<long long>(kWorkers), static_cast<long long>(kPromptPages));
  for (const Case& each : Cases()) {
    Measure(site, each.name, Deciding{.site = site, .what = each}, size);
  }
  Measure(site, "64 replicas, dispatched", Dispatching(site), size);
  return 0;
}

}  // namespace
}  // namespace divisi

int main(int argc, char** argv) {
  return divisi::Run(argc > 1 && std::string(argv[1]) == "--tiny");
}
