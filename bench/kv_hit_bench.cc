// Time to the first token of a prompt whose prefix lies in host memory or on the disk, against what
// it takes to read that prefix, or to compute the rest, whichever is longer: with the real engine,
// model and tiers, nothing else running in the process.
//   kv_hit_bench --model DIR --directory DISK [--prefix TOKENS] [--rounds R] [--tiny]
// `divisi model synth --config examples/configs/qwen3-0.6b.json --out DIR` makes the model. The
// first run computes two prefixes, minutes at 8192 tokens, and leaves their pages in DISK; later
// ones find them there. The device holds one of them: each request pushes the other one out.
//   read     the prefix's pages copied one by one, or its files read from start to end, none of it
//            in the system's cache
//   compute  the rest of the prompt with its prefix on the device
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "divisi/core/clock.h"
#include "divisi/core/format.h"
#include "divisi/core/huge_memory.h"
#include "divisi/core/random.h"
#include "divisi/engine/engine.h"
#include "divisi/engine/model_executor.h"
#include "divisi/engine/tier_driver.h"

namespace divisi {
namespace {

struct Settings {
  std::filesystem::path model;
  std::filesystem::path directory;
  int64_t prefix = 8192;
  int rounds = 3;
  bool tiny = false;
};

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// One life of a server on these tiers.
class Server {
 public:
  Server(const Settings& settings, Bytes host) : settings_(settings) {
    const int64_t most = settings.prefix + 272;
    const ModelSpec spec = LoadModelSpec(settings.model).value();
    const KvLayout layout{.layers = spec.layers,
                          .kv_heads = spec.kv_heads,
                          .head_dim = spec.head_dim,
                          .type = ChooseComputeType("auto", spec.stored_type)};
    executor_ =
        ModelExecutor::Load({.directory = settings.model,
                             .compute = layout.type,
                             .threads = static_cast<int>(std::thread::hardware_concurrency()),
                             .max_model_len = most,
                             .kv_memory = Bytes(layout.PageBytes() * (most / 16 + 8)),
                             .copy_weights = true},
                            clock_)
            .value();
    page_ = layout.PageBytes();
    const SchedulerOptions options{.max_batched_tokens = 512,
                                   .max_model_len = most,
                                   .blocks = executor_->pages().pages(),
                                   .page_format = "bench"};
    tiers_ =
        TierDriver::Open({.shape = {.layers = layout.layers, .layer_bytes = layout.LayerBytes()},
                          .model = RootKey(KeySpaceOf(options, {})),
                          .device = executor_->pages().memory(),
                          .host = host,
                          .disk = settings.directory,
                          .disk_size = Bytes(int64_t{16} << 30),
                          .disk_writes = DiskWrites::kAll},
                         logger_)
            .value();
    engine_ =
        std::make_unique<Engine>(options, *executor_, clock_, EngineKv{.tiers = tiers_.get()});
  }
  ~Server() { engine_.reset(); }

  struct Ran {
    Seconds ttft, first_token;
    int64_t cached = 0;
  };
  std::future<Ran> Start(std::vector<TokenId> prompt) {
    Request request{.prompt = std::move(prompt), .max_tokens = 1};
    auto ended = std::make_shared<std::promise<Ran>>();
    const auto sink = [ended](const RequestEvent& event) {
      if (!event.finish) return;
      const Timeline& t = event.timeline;
      ended->set_value({t.first_token - t.arrived, t.first_token, t.cached_tokens});
    };
    const auto submitted = engine_->Submit(std::move(request), sink);
    CHECK(submitted.ok(), "{}", submitted.error().message);
    return ended->get_future();
  }
  Ran Run(std::vector<TokenId> prompt) { return Start(std::move(prompt)).get(); }
  // Until every page was saved.
  void Settle() {
    do {
      Run({1, 2});
    } while (engine_->stats().prefixes->tiers.moves > 0);
  }
  int64_t page() const { return page_; }
  int64_t PagesRead(Tier tier) const {
    return tiers_->stats().io.tiers[static_cast<size_t>(tier)].pages_read;
  }

 private:
  const Settings& settings_;
  const SteadyClock clock_;
  Logger logger_{Logger::Options{.least = LogLevel::kError}};
  int64_t page_ = 0;
  std::unique_ptr<ModelExecutor> executor_;
  std::unique_ptr<TierDriver> tiers_;
  std::unique_ptr<Engine> engine_;
};

class Measurement {
 public:
  explicit Measurement(const Settings& settings)
      : settings_(settings), prefixes_{Prefix(7), Prefix(1000)} {}

  void Run() {
    Fill();
    source_ = HugeMemory::Reserve(prefix_bytes_, "the benchmark").value();
    target_ = HugeMemory::Reserve(prefix_bytes_, "the benchmark").value();
    std::memset(source_->data(), 1, source_->size().value);
    std::memset(target_->data(), 2, target_->size().value);
    std::printf("prefix %lld tokens, %.1f MB of KV\n", static_cast<long long>(settings_.prefix),
                static_cast<double>(prefix_bytes_.value) * 1e-6);
    {
      Server server(settings_, Bytes(0));
      server.Run(Prompt(0, 64));  // Rates are measured from here on.
      Disk(server);
      DiskBehindAnother(server);
    }
    Server server(settings_, Bytes(3 * prefix_bytes_.value));
    for (const int which : {0, 1}) {
      server.Run(Prompt(which, 64));
      server.Settle();
    }
    for (const int64_t tokens : {1, 16, 64, 256}) Host(server, tokens);
  }

 private:
  std::vector<TokenId> Prefix(int64_t salt) const {
    std::vector<TokenId> tokens;
    for (int64_t i = 0; i < settings_.prefix; ++i) {
      tokens.push_back(static_cast<TokenId>((salt + i * 7919) % 2000));
    }
    return tokens;
  }
  // A prompt that begins with the prefix and goes on as none before it.
  std::vector<TokenId> Prompt(int which, int64_t rest) {
    std::vector<TokenId> prompt = prefixes_[which];
    for (int64_t i = 0; i < rest; ++i) {
      prompt.push_back(static_cast<TokenId>(random_.Between(0, 1999)));
    }
    return prompt;
  }
  void Fill() {
    std::filesystem::create_directories(settings_.directory);
    Server server(settings_, Bytes(0));
    prefix_bytes_ = Bytes(server.page() * settings_.prefix / 16);
    const SteadyClock clock;
    for (const int which : {0, 1}) {
      const Seconds start = clock.Now();
      const auto ran = server.Run(Prompt(which, 1));
      std::printf("prefix %d: %lld of %lld tokens were there, %.1f s\n", which,
                  static_cast<long long>(ran.cached), static_cast<long long>(settings_.prefix),
                  (clock.Now() - start).value);
      std::fflush(stdout);
      server.Settle();
    }
  }

  Seconds Copy(const Server& server) const {
    const SteadyClock clock;
    const Seconds start = clock.Now();
    const auto page = static_cast<size_t>(server.page());
    for (int64_t i = 0; i < settings_.prefix / 16; ++i) {
      const size_t at = static_cast<size_t>(i) * page;
      std::memcpy(target_->data() + at, source_->data() + at, page);
    }
    return clock.Now() - start;
  }

  template <typename Each>
  void ForEachFile(Each each) const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(settings_.directory)) {
      if (!entry.is_regular_file()) continue;
      const int fd = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
      CHECK(fd >= 0);
      each(fd);
      close(fd);
    }
  }
  void DropFiles() const {
    sync();
    ForEachFile([](int fd) { posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); });
  }
  // Of as many bytes as the prefix has, at the rate of reading all files.
  Seconds ReadFiles() const {
    DropFiles();
    std::vector<std::byte> to(size_t{1} << 20);
    int64_t bytes = 0;
    const SteadyClock clock;
    const Seconds start = clock.Now();
    ForEachFile([&](int fd) {
      for (int64_t got = 1; got > 0; bytes += got) got = read(fd, to.data(), to.size());
    });
    return (clock.Now() - start) *
           (static_cast<double>(prefix_bytes_.value) / static_cast<double>(bytes));
  }

  void Print(const std::string& name, const std::vector<double>& ttft, double read,
             double compute) const {
    const double bound = std::max(read, compute);
    std::printf("%-34s TTFT %8.1f ms  read %8.1f  compute %8.1f  %.3f x the longer\n", name.c_str(),
                1e3 * Median(ttft), 1e3 * read, 1e3 * compute, Median(ttft) / bound);
    std::fflush(stdout);
  }

  // A prompt whose prefix lies below the device, and then one whose prefix is there.
  struct Pair {
    Server::Ran hit, device;
    double part = 1;  // Of the prefix, that was read: a few of its pages may be on the device yet.
  };
  Pair RunPair(Server& server, int which, int64_t rest, Tier tier) {
    const int64_t before = server.PagesRead(tier);
    Pair pair{server.Run(Prompt(which, rest)), server.Run(Prompt(which, rest))};
    ExpectCached(pair.hit);
    ExpectCached(pair.device);
    const int64_t pages = server.PagesRead(tier) - before;
    pair.part = static_cast<double>(pages) / static_cast<double>(settings_.prefix / 16);
    Expect(pair.part > 0.6, Format("{} pages were read from this tier", pages));
    return pair;
  }

  // Where it does not hold, nothing was measured. The tiny run, a test on machines that do other
  // things too, only says so: a load that is late there is given up.
  void Expect(bool holds, const std::string& otherwise) const {
    CHECK(holds || settings_.tiny, "{}", otherwise);
    if (!holds) std::printf("nothing is measured: %s\n", otherwise.c_str());
  }
  void ExpectCached(const Server::Ran& ran) const {
    Expect(ran.cached == settings_.prefix, Format("{} tokens were found", ran.cached));
  }

  void Host(Server& server, int64_t rest) {
    std::vector<double> ttft, read, compute;
    for (int round = 0; round < settings_.rounds; ++round) {
      for (const int which : {0, 1}) {
        const Pair pair = RunPair(server, which, rest, Tier::kHost);
        ttft.push_back(pair.hit.ttft.value);
        compute.push_back(pair.device.ttft.value);
        read.push_back(Copy(server).value * pair.part);
      }
    }
    Print("host memory, and " + std::to_string(rest) + " new tokens", ttft, Median(read),
          Median(compute));
  }

  void Disk(Server& server) {
    std::vector<double> ttft, read, compute;
    for (int round = 0; round < settings_.rounds; ++round) {
      for (const int which : {1, 0}) {
        const double whole = ReadFiles().value;
        DropFiles();
        const Pair pair = RunPair(server, which, 64, Tier::kDisk);
        read.push_back(whole * pair.part);
        ttft.push_back(pair.hit.ttft.value);
        compute.push_back(pair.device.ttft.value);
      }
    }
    Print("disk, and 64 new tokens", ttft, Median(read), Median(compute));
  }

  // Behind a prompt that takes longer than reading: from its first token on.
  void DiskBehindAnother(Server& server) {
    std::vector<double> since, compute;
    for (int round = 0; round < settings_.rounds; ++round) {
      for (const int which : {1, 0}) {
        DropFiles();
        std::vector<TokenId> other = Prompt(0, std::min<int64_t>(settings_.prefix / 8, 256));
        other.erase(other.begin(), other.begin() + settings_.prefix);
        auto ahead = server.Start(std::move(other));
        const auto behind = server.Start(Prompt(which, 64)).get();
        ExpectCached(behind);
        since.push_back((behind.first_token - ahead.get().first_token).value);
        compute.push_back(server.Run(Prompt(which, 64)).ttft.value);
      }
    }
    Print("disk, behind another prompt", since, 0, Median(compute));
  }

  const Settings& settings_;
  const std::array<std::vector<TokenId>, 2> prefixes_;
  Bytes prefix_bytes_;
  Random random_{std::random_device{}()};  // Earlier runs' prompts lie on the disk.
  std::optional<HugeMemory> source_, target_;
};

Settings Parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--tiny") {
      settings.model = DIVISI_SOURCE_DIR "/models/tiny-qwen3";
      settings.prefix = 1280;
      settings.rounds = 1;
      settings.tiny = true;
      std::string name = "/tmp/kv_hit_bench.XXXXXX";
      settings.directory = mkdtemp(name.data());
    } else if (flag == "--model" && i + 1 < argc) {
      settings.model = argv[++i];
    } else if (flag == "--directory" && i + 1 < argc) {
      settings.directory = argv[++i];
    } else if (flag == "--prefix" && i + 1 < argc) {
      settings.prefix = std::atoll(argv[++i]) / 16 * 16;
    } else if (flag == "--rounds" && i + 1 < argc) {
      settings.rounds = std::atoi(argv[++i]);
    } else {
      std::fprintf(stderr, "unknown option %s; see the head of kv_hit_bench.cc\n", argv[i]);
      std::exit(2);
    }
  }
  if (settings.model.empty() || settings.directory.empty()) {
    std::fprintf(stderr, "--model and --directory are needed; see the head of kv_hit_bench.cc\n");
    std::exit(2);
  }
  return settings;
}

}  // namespace
}  // namespace divisi

int main(int argc, char** argv) {
  const divisi::Settings settings = divisi::Parse(argc, argv);
  divisi::Measurement(settings).Run();
  if (settings.tiny) std::filesystem::remove_all(settings.directory);
}
