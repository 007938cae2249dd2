// What the directory costs: its updates and its answers, full of pages whose memory is cold.
//   page_directory_bench [--benchmark_filter=...]
// DIVISI_BENCH_PAGES: pages of the directory, 10 million for figures; few by default.
// Lookups: `pages` of a prompt against `holders`, prompts in turn so that each one's entries are
// cold, its keys just made; the time is the processor's. "alike": every holder has the same prefix;
// "differing": no two, from none to the whole chain; "tiers": as well in each of three tiers;
// "unknown": nobody has any. looked: pages looked at.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "divisi/core/check.h"
#include "divisi/kv/page_directory.h"

namespace divisi {
namespace {

constexpr Seconds kNow(1);

double CpuSeconds() {
  timespec now;
  CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

int64_t Capacity() {
  const char* pages = std::getenv("DIVISI_BENCH_PAGES");
  return pages == nullptr ? 100'000 : std::atoll(pages);
}

// SplitMix64: keys as fast as memory takes them.
void FillKey(uint64_t number, BlockKey& key) {
  for (int i = 0; i < 4; ++i) {
    uint64_t word = (number * 4 + static_cast<uint64_t>(i) + 1) * 0x9e3779b97f4a7c15;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    word ^= word >> 31;
    std::memcpy(key.bytes.data() + 8 * i, &word, sizeof word);
  }
}

std::vector<BlockKey> Keys(uint64_t first, int64_t count) {
  std::vector<BlockKey> keys(static_cast<size_t>(count));
  for (size_t i = 0; i < keys.size(); ++i) FillKey(first + i, keys[i]);
  return keys;
}

constexpr uint64_t kFillers = 1'000'000'000;  // Numbers of pages that no prompt has.

PageDirectory NewDirectory(int64_t holders) {
  auto directory = PageDirectory::Create({.pages = Capacity()});
  CHECK(directory.ok());
  for (int64_t i = 0; i < holders; ++i) CHECK(directory->Join({1 + static_cast<uint64_t>(i)}).ok());
  return *std::move(directory);
}

// Up to `pages` in all, spread over the holders.
void Fill(PageDirectory& directory, int64_t pages, int64_t holders) {
  uint64_t next = kFillers;
  for (int64_t batch = 0; directory.stats().pages < pages; ++batch) {
    const int64_t count = std::min<int64_t>(4096, pages - directory.stats().pages);
    directory.Stored({1 + static_cast<uint64_t>(batch % holders)}, Tier::kDevice,
                     Keys(next, count));
    next += static_cast<uint64_t>(count);
  }
}

// A directory takes seconds to fill: each is made once, whatever the benchmark is run again for.
template <typename Make>
auto& Once(int64_t name, Make make) {
  static std::map<int64_t, decltype(make())> made;
  auto found = made.find(name);
  if (found == made.end()) {
    made.clear();  // Memory for one at a time.
    found = made.emplace(name, make()).first;
  }
  return found->second;
}

// Half of the capacity is stored and removed in events of `batch` pages, the oldest first.
struct Churn {
  static constexpr uint64_t kHolders = 64;

  explicit Churn(int64_t batch_pages)
      : batch(batch_pages),
        directory(NewDirectory(kHolders)),
        keys(Keys(0, Capacity() / batch * batch)),
        events(Capacity() / batch) {
    Fill(directory, Capacity() - events / 2 * batch - batch, kHolders);
    for (; newest < events / 2; ++newest) Store();
  }
  void Store() { directory.Stored(HolderOf(newest), Tier::kDevice, Event(newest)); }
  void Step() {
    Store();
    const int64_t oldest = newest - events / 2;
    directory.Removed(HolderOf(oldest), Tier::kDevice, Event(oldest));
    ++newest;
  }
  NodeId HolderOf(int64_t event) const {
    return {1 + static_cast<uint64_t>(event % events) % kHolders};
  }
  std::span<const BlockKey> Event(int64_t event) const {
    return std::span(keys).subspan(static_cast<size_t>(event % events * batch),
                                   static_cast<size_t>(batch));
  }

  int64_t batch;
  PageDirectory directory;
  std::vector<BlockKey> keys;
  int64_t events;
  int64_t newest = 0;
};

// Pages stored and removed, each counted; the directory stays full.
void Updates(benchmark::State& state) {
  Churn& churn = Once(state.range(0), [&] { return Churn(state.range(0)); });
  for (auto _ : state) churn.Step();
  state.SetItemsProcessed(state.iterations() * 2 * churn.batch);
  const DirectoryStats stats = churn.directory.stats();
  CHECK(stats.unknown_removals <= stats.refused_pages);
  state.counters["bytes/pair"] =
      static_cast<double>(stats.bytes.value) / static_cast<double>(stats.pairs);
  state.counters["refused"] = static_cast<double>(stats.refused_pages);
}
BENCHMARK(Updates)->Arg(1)->Arg(16)->Arg(512);

// The same while a forgotten holder's pages are swept all the time.
void UpdatesWhileSweeping(benchmark::State& state) {
  Churn& churn = Once(16, [&] { return Churn(16); });
  uint64_t life = 1000;
  const std::vector<BlockKey> first = Keys(0, 1);
  for (auto _ : state) {
    if (churn.directory.Sweep(0)) {
      CHECK(churn.directory.Join({++life}).ok());
      churn.directory.Stored({life}, Tier::kDisk, first);
      churn.directory.Forget({life});
    }
    churn.Step();
  }
  state.SetItemsProcessed(state.iterations() * 2 * churn.batch);
}
BENCHMARK(UpdatesWhileSweeping);

// A fifth of the pages have twelve holders; others store and remove them in events of 64 pages.
struct SharedChurn {
  SharedChurn() : directory(NewDirectory(64)), keys(Keys(0, Capacity() / 5)) {
    for (uint64_t i = 1; i <= 12; ++i) directory.Stored({i}, Tier::kDevice, keys);
    Fill(directory, Capacity(), 64);
  }
  PageDirectory directory;
  std::vector<BlockKey> keys;
};

void SharedUpdates(benchmark::State& state) {
  constexpr int64_t kBatch = 64;
  SharedChurn& churn = Once(0, [] { return SharedChurn(); });
  const int64_t events = static_cast<int64_t>(churn.keys.size()) / kBatch;
  int64_t event = 0;
  for (auto _ : state) {
    const auto pages =
        std::span(churn.keys).subspan(static_cast<size_t>(event * 7919 % events * kBatch), kBatch);
    const NodeId holder{13 + static_cast<uint64_t>(event % 50)};
    churn.directory.Stored(holder, Tier::kHost, pages);
    churn.directory.Removed(holder, Tier::kHost, pages);
    ++event;
  }
  state.SetItemsProcessed(state.iterations() * 2 * kBatch);
}
BENCHMARK(SharedUpdates);

enum Shape { kAlike, kDiffering, kTiered, kUnknown };

void Store(PageDirectory& directory, std::span<const BlockKey> keys, Shape shape, int64_t holders) {
  const auto pages = static_cast<int64_t>(keys.size());
  for (int64_t i = 0; i < holders && shape != kUnknown; ++i) {
    const NodeId holder{1 + static_cast<uint64_t>(i)};
    const int64_t length = shape == kAlike ? pages * 3 / 4 : (2 * i + 1) * pages / (2 * holders);
    if (shape == kTiered) {
      directory.Stored(holder, Tier::kDevice, keys.first(static_cast<size_t>(length / 3)));
      directory.Stored(holder, Tier::kHost, keys.first(static_cast<size_t>(length * 3 / 5)));
      directory.Stored(holder, Tier::kDisk, keys.first(static_cast<size_t>(length)));
    } else {
      directory.Stored(holder, Tier::kDevice, keys.first(static_cast<size_t>(length)));
    }
  }
}

// Prompts of each shape in a full directory: enough to be cold when their turn comes.
struct Prompts {
  Prompts(int64_t prompt_pages, int64_t holders)
      : pages(prompt_pages),
        count(std::clamp<int64_t>(Capacity() / 8 / pages, 1, 500)),
        directory(NewDirectory(holders)),
        keys(Keys(0, 4 * count * pages)) {
    for (const Shape shape : {kAlike, kDiffering, kTiered}) {
      for (int64_t i = 0; i < count; ++i) Store(directory, Prompt(shape, i), shape, holders);
    }
    Fill(directory, Capacity(), holders);
  }
  std::span<const BlockKey> Prompt(Shape shape, int64_t number) const {
    return std::span(keys).subspan(static_cast<size_t>((shape * count + number % count) * pages),
                                   static_cast<size_t>(pages));
  }

  int64_t pages;
  int64_t count;
  PageDirectory directory;
  std::vector<BlockKey> keys;
};

void Lookups(benchmark::State& state) {
  const int64_t pages = state.range(0);
  const int64_t holders = state.range(1);
  const auto shape = static_cast<Shape>(state.range(2));
  Prompts& prompts = Once(pages, [&] { return Prompts(pages, holders); });
  const int64_t looked = prompts.directory.stats().looked_pages;
  int64_t next = 0;
  std::vector<BlockKey> keys;
  for (auto _ : state) {
    const auto prompt = prompts.Prompt(shape, next++);
    keys.assign(prompt.begin(), prompt.end());
    const double start = CpuSeconds();
    benchmark::DoNotOptimize(prompts.directory.Find(keys, kNow));
    state.SetIterationTime(CpuSeconds() - start);
  }
  state.counters["looked"] = static_cast<double>(prompts.directory.stats().looked_pages - looked) /
                             static_cast<double>(state.iterations());
  state.SetLabel(std::array{"alike", "differing", "tiers", "unknown"}[shape]);
}
BENCHMARK(Lookups)
    ->ArgNames({"pages", "holders", "shape"})
    ->ArgsProduct({{512}, {64}, {kAlike, kDiffering, kTiered, kUnknown}})
    ->ArgsProduct({{4096}, {128}, {kAlike, kDiffering, kTiered, kUnknown}})
    ->ArgsProduct({{15000}, {128}, {kAlike, kDiffering, kTiered, kUnknown}})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

// Each page of one holder's, as the chosen worker's are before it is relied on.
void ExactForOne(benchmark::State& state) {
  Prompts& prompts = Once(512, [] { return Prompts(512, 64); });
  int64_t next = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        prompts.directory.FindExactly({64}, prompts.Prompt(kDiffering, next++), kNow));
  }
}
BENCHMARK(ExactForOne)->Unit(benchmark::kMicrosecond);

// Forgetting a holder of a full directory, and the whole sweep that follows.
void Forgets(benchmark::State& state) {
  Prompts& prompts = Once(512, [] { return Prompts(512, 64); });
  uint64_t life = 1000;
  for (auto _ : state) {
    CHECK(prompts.directory.Join({++life}).ok());
    prompts.directory.Stored({life}, Tier::kHost, prompts.Prompt(kAlike, 0));
    prompts.directory.Forget({life});
    CHECK(prompts.directory.Sweep(INT64_MAX));
  }
}
BENCHMARK(Forgets)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace divisi

BENCHMARK_MAIN();
