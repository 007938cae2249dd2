// What the tiers below the device reach, beside what the machine does with the same bytes: host
// memory against plain copies, a directory against a plain file read from start to end. Pages of
// the 0.6B shape, 28 layers of 64 KiB.
//   kv_tiers_bench [--tiny] [--directory DIR] [--pages N] [--files N] [--rounds R] [--cpu-time]
// All ways take turns, rounds times; medians. Before each read of the disk the system's cache of
// its files is dropped, and what remains of it is printed. --files: how fast a directory of so many
// small pages is read at the start. --cpu-time: host memory by the thread's processor time, on a
// machine that others use.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "divisi/core/clock.h"
#include "divisi/core/huge_memory.h"
#include "divisi/kv/disk_store.h"
#include "divisi/kv/host_store.h"
#include "divisi/kv/tier_io.h"

namespace divisi {
namespace {

constexpr PageShape kShape{.layers = 28, .layer_bytes = 64 << 10};
constexpr int64_t kPage = 28 * (64 << 10);

struct Settings {
  bool tiny = false, cpu_time = false;
  std::string directory;
  int64_t pages = 256;
  int64_t files = 0;
  int rounds = 5;
};

PageHeader Page(int64_t number, const PageShape& shape) {
  PageHeader header{.shape = shape, .position = 16 * number};
  const uint64_t mixed = static_cast<uint64_t>(number) * 0x9e3779b97f4a7c15u;  // Over all folders.
  std::memcpy(header.key.bytes.data(), &mixed, sizeof mixed);
  return header;
}

HugeMemory Memory(int64_t bytes) {
  auto memory = HugeMemory::Reserve(Bytes(bytes), "the benchmark").value();
  for (int64_t i = 0; i < bytes; i += 8) {
    const uint64_t word = static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u;
    std::memcpy(memory.data() + i, &word, sizeof word);
  }
  return memory;
}

std::span<std::byte> PageOf(const HugeMemory& memory, int64_t page) {
  return {memory.data() + page * kPage, size_t{kPage}};
}

double ThreadSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Way {
  std::string name;
  std::function<void()> run;
  std::function<std::string()> before = [] { return ""; };
  std::vector<double> seconds{};
  std::string note{};
};

void TakeTurns(std::vector<Way>& ways, const Settings& settings, bool cpu_time) {
  const SteadyClock clock;
  const auto now = [&] { return cpu_time ? ThreadSeconds() : clock.Now().value; };
  for (int round = 0; round < settings.rounds; ++round) {
    for (Way& way : ways) {
      way.note = way.before();
      const double start = now();
      way.run();
      way.seconds.push_back(now() - start);
    }
  }
}

// Beside the first way, in the ratio of medians.
void Print(std::vector<Way>& ways, int64_t bytes) {
  double reference = 0;
  for (Way& way : ways) {
    std::ranges::sort(way.seconds);
    const auto rate = [&](size_t i) { return 1e-9 * static_cast<double>(bytes) / way.seconds[i]; };
    const double median = rate(way.seconds.size() / 2);
    if (reference == 0) reference = median;
    std::printf("%-34s %7.3f GB/s median %7.3f least %7.3f most  %6.1f %% of the first  %s\n",
                way.name.c_str(), median, rate(way.seconds.size() - 1), rate(0),
                100 * median / reference, way.note.c_str());
  }
  std::fflush(stdout);
}

class Loader {
 public:
  Loader(TierStores stores, Bytes run) : io_(Options(std::move(stores), run)) {}

  void Load(const HugeMemory& device, int64_t pages, Tier tier) {
    PageLoad load{.id = 1, .deadline = clock_.Now() + Seconds(600)};
    for (int64_t i = 0; i < pages; ++i) {
      load.pages.push_back({Page(i, kShape).key, tier, PageOf(device, i)});
    }
    CHECK(io_.Load(std::move(load)).ok());
    for (;;) {
      const auto done = io_.TakeLoads();
      if (!done.empty()) {
        CHECK(done[0].pages_ok == pages, "{} pages", done[0].pages_ok);
        return;
      }
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return woken_; });
      woken_ = false;
    }
  }

 private:
  TierIoOptions Options(TierStores stores, Bytes run) {
    TierIoOptions options{.stores = std::move(stores), .terms = {.shape = kShape, .run = run}};
    options.wake = [this] {
      const std::lock_guard lock(mutex_);
      woken_ = true;
      changed_.notify_all();
    };
    return options;
  }

  SteadyClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
  TierIo io_;
};

void ReadAll(PageStore& store, const HugeMemory& to, int64_t pages) {
  for (int64_t i = 0; i < pages; ++i) {
    const auto reader = store.Open(Page(i, kShape).key).value();
    CHECK(reader->ReadLayers(0, kShape.layers, PageOf(to, i)).ok());
  }
}

void PutAll(PageStore& store, const HugeMemory& from, int64_t pages) {
  for (int64_t i = 0; i < pages; ++i) CHECK(store.Put(Page(i, kShape), PageOf(from, i)).ok());
}

void RemoveAll(PageStore& store, int64_t pages) {
  for (int64_t i = 0; i < pages; ++i) store.Remove(Page(i, kShape).key);
}

void HostMemory(const Settings& settings) {
  const int64_t pages = settings.pages, bytes = pages * kPage;
  const HugeMemory a = Memory(bytes), b = Memory(bytes);
  const auto store = std::shared_ptr(HostStore::Create(kShape, Bytes(bytes)).value());
  Loader loader({.host = store}, Bytes(128 << 10));
  PutAll(*store, a, pages);
  uint64_t sum = 0;
  const auto copy = [&](int64_t step) {
    for (int64_t at = 0; at < bytes; at += step) {
      std::memcpy(b.data() + at, a.data() + at, static_cast<size_t>(step));
    }
  };
  std::vector<Way> ways;
  ways.push_back({"memcpy, pages", [&] { copy(kPage); }});
  ways.push_back({"memcpy, layers", [&] { copy(64 << 10); }});
  ways.push_back({"memcpy, all at once", [&] { copy(bytes); }});
  ways.push_back({"reading alone (XXH3)", [&] {
                    for (int64_t i = 0; i < pages; ++i) sum += PageSum(PageOf(a, i));
                  }});
  ways.push_back({"host tier, read and checked", [&] { ReadAll(*store, b, pages); }});
  ways.push_back({"host tier, put and summed", [&] { PutAll(*store, a, pages); },
                  [&] {
                    RemoveAll(*store, pages);
                    return "";
                  }});
  if (!settings.cpu_time) {
    ways.push_back(
        {"host tier, load through threads", [&] { loader.Load(b, pages, Tier::kHost); }});
  }
  TakeTurns(ways, settings, settings.cpu_time);
  std::printf("host memory, %lld pages of 1.75 MiB (%llx)\n", static_cast<long long>(pages),
              static_cast<unsigned long long>(sum & 1));
  Print(ways, bytes);
}

// Drops the cache of a file; the bytes of it that remain.
int64_t Drop(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0);
  (void)::fsync(fd);
  (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  struct stat info {};
  CHECK(::fstat(fd, &info) == 0);
  const auto size = static_cast<size_t>(info.st_size);
  void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  std::vector<unsigned char> resident((size + 4095) / 4096);
  CHECK(::mincore(mapped, size, resident.data()) == 0);
  ::munmap(mapped, size);
  ::close(fd);
  return 4096 * std::ranges::count_if(resident, [](unsigned char r) { return (r & 1) != 0; });
}

std::string DropAll(const std::filesystem::path& directory) {
  int64_t left = 0, all = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file() || entry.file_size() < 4096) continue;
    left += Drop(entry.path());
    all += static_cast<int64_t>(entry.file_size());
  }
  return Format("cached {:.1f} %", 100 * static_cast<double>(left) / static_cast<double>(all));
}

void ReadPlainly(const std::filesystem::path& path, std::span<std::byte> buffer, int flags) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  CHECK(fd >= 0);
  (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  int64_t at = 0;
  for (ssize_t got = 1; got > 0; at += got) {
    got = ::pread(fd, buffer.data(), buffer.size(), at);
    CHECK(got >= 0);
  }
  ::close(fd);
}

void WritePlainly(const std::filesystem::path& path, const HugeMemory& from, int64_t bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  CHECK(fd >= 0);
  for (int64_t at = 0; at < bytes; at += kPage) {
    CHECK(::pwrite(fd, from.data() + at, kPage, at) == kPage);
  }
  CHECK(::fsync(fd) == 0);
  ::close(fd);
}

void Disk(const Settings& settings, DiskCalls& calls, Logger& log) {
  const int64_t pages = settings.pages, bytes = pages * kPage;
  const std::filesystem::path root = settings.directory + "/kv_tiers_bench";
  std::filesystem::create_directories(root / "kv");
  const HugeMemory a = Memory(bytes), b = Memory(bytes);
  const DiskStoreOptions options{
      .directory = root / "kv", .budget = Bytes(2 * bytes), .shape = kShape};
  const auto store = std::shared_ptr(DiskStore::Open(options, calls, log).value());
  const auto plain = root / "plain";

  const auto settle = [&] {
    ::sync();
    return std::string();
  };
  std::vector<Way> writes;
  writes.push_back(
      {"a plain file written, and synced", [&] { WritePlainly(plain, a, bytes); }, settle});
  writes.push_back({"disk tier, put, and synced",
                    [&] {
                      PutAll(*store, a, pages);
                      ::sync();
                    },
                    [&] {
                      RemoveAll(*store, pages);
                      return settle();
                    }});
  TakeTurns(writes, settings, false);
  std::printf("disk, %lld pages of 1.75 MiB in %s\n", static_cast<long long>(pages), root.c_str());
  Print(writes, bytes);

  const HugeMemory buffer = Memory(4 << 20);
  const std::span<std::byte> mebibyte(buffer.data(), size_t{1} << 20);
  const auto cold = [&] { return DropAll(root); };
  std::vector<Way> reads;
  reads.push_back(
      {"a plain file, 1 MiB at a time", [&] { ReadPlainly(plain, mebibyte, 0); }, cold});
  reads.push_back(
      {"a plain file, direct, 1 MiB", [&] { ReadPlainly(plain, mebibyte, O_DIRECT); }, cold});
  reads.push_back({"disk tier, page by page", [&] { ReadAll(*store, b, pages); }, cold});
  std::vector<std::unique_ptr<Loader>> loaders;
  for (const int64_t run : {64, 128, 256, 1024, 1792}) {
    loaders.push_back(std::make_unique<Loader>(TierStores{.disk = store}, Bytes(run << 10)));
    reads.push_back({Format("disk tier, load in runs of {} KiB", run),
                     [&, loader = loaders.back().get()] { loader->Load(b, pages, Tier::kDisk); },
                     cold});
  }
  TakeTurns(reads, settings, false);
  Print(reads, bytes);
}

void Start(const Settings& settings, DiskCalls& calls, Logger& log) {
  constexpr PageShape kSmall{.layers = 2, .layer_bytes = 1024};
  const std::filesystem::path root = settings.directory + "/kv_tiers_bench";
  std::filesystem::create_directories(root / "small");
  const DiskStoreOptions options{
      .directory = root / "small", .budget = Bytes(settings.files * 8192), .shape = kSmall};
  const std::vector<std::byte> payload(static_cast<size_t>(kSmall.PayloadBytes()));
  const SteadyClock clock;
  {
    const auto store = DiskStore::Open(options, calls, log).value();
    const Seconds start = clock.Now();
    for (int64_t i = 0; i < settings.files; ++i) {
      CHECK(store->Put(Page(i, kSmall), payload).ok());
    }
    std::printf("%lld small pages put: %.0f files/s\n", static_cast<long long>(settings.files),
                static_cast<double>(settings.files) / (clock.Now() - start).value);
  }
  for (const bool cold : {true, false}) {
    const std::string note = cold ? DropAll(root / "small") : std::string("cached");
    const auto store = DiskStore::Open(options, calls, log).value();
    const DiskScan scan = store->TakeScan();
    CHECK(static_cast<int64_t>(scan.pages.size()) == settings.files);
    std::printf("a start over them: %.0f files/s  heads %s, names and inodes cached\n",
                static_cast<double>(scan.files) / scan.took.value, note.c_str());
  }
}

void Run(Settings settings) {
  if (settings.tiny) settings.pages = 2, settings.rounds = 1, settings.files = 20;
  HostMemory(settings);
  std::string own = "/tmp/divisi_bench_XXXXXX";
  if (settings.directory.empty() && settings.tiny) settings.directory = ::mkdtemp(own.data());
  if (settings.directory.empty()) return;
  DiskCalls calls;
  Logger log({.least = LogLevel::kError});
  Disk(settings, calls, log);
  if (settings.files > 0) Start(settings, calls, log);
  std::filesystem::remove_all(settings.directory + "/kv_tiers_bench");
  if (settings.tiny) (void)::rmdir(own.c_str());
}

}  // namespace
}  // namespace divisi

int main(int argc, char** argv) {
  divisi::Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const bool more = i + 1 < argc;
    if (name == "--tiny") settings.tiny = true;
    if (name == "--cpu-time") settings.cpu_time = true;
    if (name == "--directory" && more) settings.directory = argv[++i];
    if (name == "--pages" && more) settings.pages = std::atoll(argv[++i]);
    if (name == "--files" && more) settings.files = std::atoll(argv[++i]);
    if (name == "--rounds" && more) settings.rounds = std::max(1, std::atoi(argv[++i]));
  }
  divisi::Run(settings);
  return 0;
}
