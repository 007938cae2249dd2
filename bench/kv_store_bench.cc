// Gets of page objects from a node of the remote pool, beside the same bytes written one-sided by
// its transport alone and beside redis-server with the same objects; each in processes of its own,
// in turns, with many gets under way.
// Also loads of as many pages by a worker's tier (kv/remote_store.h), whole and by layers: from the
// pool to where computing reads them, each layer checked; "begins": when the first layers are
// there.
//   kv_store_bench [--tiny] [--network] [--rounds R] [--count N] [--layer BYTES]
// Same-host: the owner of memory reads the writer's; --network: over what UCX_TLS allows. Memory on
// both sides is beyond the caches. Redis is asked over a Unix socket and over TCP by the client
// that workers have (kv/redis_store.h); skipped where redis-server is not installed. Verified: the
// head and each layer's sum of one object of each round, outside of the time.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "divisi/control/store_client.h"
#include "divisi/control/store_server.h"
#include "divisi/core/clock.h"
#include "divisi/core/format.h"
#include "divisi/core/huge_memory.h"
#include "divisi/kv/page_loading.h"
#include "divisi/kv/page_object.h"
#include "divisi/kv/redis_store.h"
#include "divisi/kv/remote_store.h"
#include "divisi/net/ucx_transport.h"

namespace divisi {
namespace {

constexpr Seconds kPatience{60};
constexpr int kLayers = 28;

struct Case {
  int64_t layer = 65536;  // 28 of them: the 0.6B shape's page of 16 tokens
  int64_t count = 128;
  int rounds = 7;
  bool network = false;

  int64_t object() const { return static_cast<int64_t>(kPageHeadBytes) + kLayers * layer; }
  // Places begin at pages, as a node's do.
  int64_t place() const { return (object() + 4095) / 4096 * 4096; }
  int64_t region() const { return place() * count; }
};

const SteadyClock& TheClock() {
  static const SteadyClock clock;
  return clock;
}

HugeMemory Memory(int64_t bytes) {
  auto memory = HugeMemory::Reserve(Bytes(bytes), "the benchmark").value();
  std::memset(memory.data(), 1, static_cast<size_t>(bytes));
  return memory;
}

std::span<std::byte> All(const HugeMemory& memory) {
  return {memory.data(), static_cast<size_t>(memory.size().value)};
}

std::unique_ptr<Transport> Open(NodeId self, bool network) {
  return OpenUcxTransport({.self = self, .read_peers = !network}, TheClock()).value();
}

BlockKey KeyOf(int64_t number) {
  BlockKey key;
  std::memcpy(key.bytes.data(), &number, sizeof number);
  return key;
}

std::vector<std::byte> ObjectOf(int64_t number, int64_t layer) {
  PageHeader header;
  header.shape.layers = kLayers;
  header.shape.layer_bytes = layer;
  header.key = KeyOf(number);
  header.position = number * kBlockTokens;
  std::vector<std::byte> payload(static_cast<size_t>(kLayers * layer));
  for (size_t i = 0; i + 8 <= payload.size(); i += 8) {
    const uint64_t word = static_cast<uint64_t>(number) * 0x9e3779b97f4a7c15 + i;
    std::memcpy(payload.data() + i, &word, 8);
  }
  return EncodePageObject(header, payload);
}

// A child that says a line and serves until it is killed.
class Child {
 public:
  template <typename Fn>
  explicit Child(Fn serve) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      serve(ends[1]);
      _exit(1);
    }
    close(ends[1]);
    char c = 0;
    while (read(ends[0], &c, 1) == 1 && c != '\n') said.push_back(c);
    close(ends[0]);
  }
  Child(const Child&) = delete;
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::string said;

  // Processor time of this process and the child so far.
  Seconds Work() const {
    clockid_t child;
    CHECK(clock_getcpuclockid(pid_, &child) == 0);
    Seconds sum;
    for (const clockid_t clock : {child, clockid_t{CLOCK_PROCESS_CPUTIME_ID}}) {
      timespec time{};
      CHECK(clock_gettime(clock, &time) == 0);
      sum += Seconds(static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9);
    }
    return sum;
  }

 private:
  pid_t pid_ = 0;
};

void Say(int out, const std::string& line) {
  const std::string text = line + "\n";
  CHECK(write(out, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

double Rate(const Case& c, Seconds start) {
  return static_cast<double>(c.object() * c.count) / (TheClock().Now() - start).value;
}

// ---- The transport alone

std::string Hex(std::string_view bytes) {
  std::string hex;
  for (const unsigned char b : bytes) hex += Format("{:02x}", b);
  return hex;
}

[[noreturn]] void RunOwner(const Case& c, int out) {
  const HugeMemory memory = Memory(c.region());
  auto transport = Open({2}, c.network);
  const auto region = transport->Register(All(memory)).value();
  Say(out, transport->address() + " " + Hex(EncodeRegion(region)));
  for (;;) (void)WaitForEvents(*transport, Seconds(1));
}

class Raw {
 public:
  Raw(const Case& c, const std::string& owner)
      : memory_(Memory(c.region())), transport_(Open({1}, c.network)) {
    const size_t space = owner.find(' ');
    std::string bytes;
    for (size_t i = space + 1; i + 1 < owner.size(); i += 2) {
      bytes.push_back(static_cast<char>(std::stoi(owner.substr(i, 2), nullptr, 16)));
    }
    region_ = DecodeRegion(bytes).value();
    (void)transport_->Register(All(memory_)).value();
    CHECK(transport_->Connect(region_, owner.substr(0, space)).ok());
  }

  double Round(const Case& c) {
    const Seconds start = TheClock().Now();
    for (int64_t i = 0; i < c.count; ++i) {
      const auto local =
          All(memory_).subspan(static_cast<size_t>(i * c.place()), static_cast<size_t>(c.object()));
      CHECK(transport_->Write({region_.owner, local, Bytes(i * c.place()), 0}).ok());
    }
    for (int64_t ended = 0; ended < c.count;) {
      for (const TransportEvent& event : WaitForEvents(*transport_, Seconds(1))) {
        CHECK(event.ok, "{}", event.reason);
        ended += event.kind == TransportEvent::Kind::kWritten;
      }
    }
    return Rate(c, start);
  }

 private:
  HugeMemory memory_;
  std::unique_ptr<Transport> transport_;
  RegionDescriptor region_;
};

// ---- Either pool

// Wakes who waits for calls to end.
class Ends {
 public:
  std::function<void()> Waker() {
    return [this] {
      const std::lock_guard lock(mutex_);
      rung_ = true;
      bell_.notify_one();
    };
  }
  void Wait(RemotePages& pages, int64_t count) {
    while (count > 0) {
      {
        std::unique_lock lock(mutex_);
        bell_.wait(lock, [this] { return rung_; });
        rung_ = false;
      }
      for (const RemoteDone& done : pages.Poll()) {
        CHECK(!done.error, "{}", done.error->message);
        --count;
      }
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable bell_;
  bool rung_ = false;
};

class Pool {
 public:
  explicit Pool(const Case& c) : memory_(Memory(c.region())) {}

  void Fill(const Case& c) {
    for (int i = 0; i < 10000 && (pages_->health().empty() || !pages_->health()[0].ready); ++i) {
      usleep(1000);
    }
    for (int64_t i = 0; i < c.count; ++i) {
      const auto object = ObjectOf(i, c.layer);
      (void)pages_->Put(KeyOf(i), object, kPatience);
      ends_.Wait(*pages_, 1);
    }
  }
  double Round(const Case& c) {
    const Seconds start = TheClock().Now();
    for (int64_t i = 0; i < c.count; ++i) (void)pages_->Get(KeyOf(i), Place(c, i), kPatience);
    ends_.Wait(*pages_, c.count);
    const double rate = Rate(c, start);
    const int64_t one = ++round_ % c.count;
    const auto head = CheckPageObject(Place(c, one)).value();
    CHECK(head.header.key == KeyOf(one));
    return rate;
  }

 protected:
  std::span<std::byte> Place(const Case& c, int64_t i) {
    return All(memory_).subspan(static_cast<size_t>(i * c.place()),
                                static_cast<size_t>(c.object()));
  }
  HugeMemory memory_;
  Ends ends_;
  int64_t round_ = 0;
  std::unique_ptr<RemotePages> pages_;
};

void RunNode(const Case& c, int out) {
  const HugeMemory memory = Memory(c.region());
  Logger logger({.least = LogLevel::kError});
  auto server =
      MakeStoreServer({.self = {2}}, Open({2}, c.network), All(memory), TheClock(), logger).value();
  Say(out, std::to_string(server->port()));
  static std::atomic<bool> never{false};
  server->Run(never);
}

class Store : public Pool {
 public:
  Store(const Case& c, const std::string& port) : Pool(c) {
    StoreClientOptions options{.self = {3}};
    options.nodes = {{"127.0.0.1", std::stoi(port)}};
    options.wake = ends_.Waker();
    pages_ = MakeStoreClient(options, Open({3}, c.network), All(memory_), TheClock()).value();
    Fill(c);
  }
};

// Of all objects, which Store has put.
class Loads {
 public:
  Loads(const Case& c, const std::string& port, bool by_layers)
      : by_layers_(by_layers),
        shape_{.layers = kLayers, .layer_bytes = c.layer},
        memory_(Memory(kLayers * c.layer * c.count)) {
    const NodeId self{uint64_t{10} + by_layers};
    hub_ =
        RemoteHub::Create(RemotePageStore::MemoryFor(shape_),
                          [&](std::span<std::byte> to, const Clock& clock,
                              std::function<void()> wake) -> Result<std::unique_ptr<RemotePages>> {
                            StoreClientOptions options{.self = self};
                            options.nodes = {{"127.0.0.1", std::stoi(port)}};
                            options.wake = std::move(wake);
                            return MakeStoreClient(options, Open(self, c.network), to, clock);
                          })
            .value();
    store_ = std::make_shared<RemotePageStore>(hub_, RemoteStoreOptions{.shape = shape_});
    for (int i = 0; i < 10000 && (hub_->health().empty() || !hub_->health()[0].ready); ++i) {
      usleep(1000);
    }
  }

  double Round(const Case& c) {
    PageLoad load{.deadline = TheClock().Now() + kPatience, .by_layers = by_layers_};
    load.gate = std::make_shared<LayerGate>();
    const auto page = static_cast<size_t>(shape_.PayloadBytes());
    for (int64_t i = 0; i < c.count; ++i) {
      load.pages.push_back(
          {KeyOf(i), Tier::kRemote, All(memory_).subspan(static_cast<size_t>(i) * page, page)});
    }
    const TierStores stores{.remote = store_};
    const LoadingTerms terms{.shape = shape_};
    Landing landing;
    const Seconds start = TheClock().Now();
    Seconds begun;
    std::thread computing([&] {
      CHECK(load.gate->Wait(0, kPatience));
      begun = TheClock().Now() - start;
    });
    const LoadDone done = PageLoading(load, stores, terms).Run(landing, TheClock());
    const double rate = Rate(c, start);
    computing.join();
    CHECK(done.pages_ok == c.count, "{}", done.bad.empty() ? "late" : done.bad[0].why);
    begun_.push_back(begun.value / done.took.value);
    return rate;
  }
  // When the first layers are there, of the time of all.
  const std::vector<double>& begun() const { return begun_; }

 private:
  const bool by_layers_;
  const PageShape shape_;
  const HugeMemory memory_;
  std::shared_ptr<RemoteHub> hub_;
  std::shared_ptr<RemotePageStore> store_;
  std::vector<double> begun_;
};

constexpr const char* kRedisServer = "/usr/bin/redis-server";

struct RedisPlace {
  std::string folder = Format("/tmp/divisi-redis-bench-{}", getpid());
  std::string path = folder + "/redis.sock";
  int port = 20000 + getpid() % 20000;
  ~RedisPlace() { std::filesystem::remove_all(folder); }
};

void RunRedis(const RedisPlace& place, int out) {
  std::filesystem::create_directories(place.folder);
  Say(out, "");
  execl(kRedisServer, "redis-server", "--port", std::to_string(place.port).c_str(), "--unixsocket",
        place.path.c_str(), "--save", "", "--dir", place.folder.c_str(), "--logfile", "/dev/null",
        nullptr);
}

class Redis : public Pool {
 public:
  Redis(const Case& c, const RedisPlace& place, bool tcp) : Pool(c) {
    RedisStoreOptions options{.port = place.port};
    if (!tcp) options.unix_path = place.path;
    options.first_backoff = Seconds(0.02);
    options.wake = ends_.Waker();
    pages_ = MakeRedisStore(options, TheClock());
    Fill(c);
  }
};

struct Rounds {
  std::vector<double> rates;
  std::vector<double> work;  // Seconds of processor time for a GB

  template <typename Asker>
  void Add(const Case& c, const Child& child, Asker& asker) {
    const Seconds before = child.Work();
    rates.push_back(asker.Round(c));
    const double bytes = static_cast<double>(c.object() * c.count);
    work.push_back((child.Work() - before).value / bytes * 1e9);
  }
};

double Median(std::vector<double> rates) {
  std::ranges::sort(rates);
  return rates[rates.size() / 2];
}

void Print(const Case& c, const char* what, const Rounds& rounds, const Rounds& raw) {
  const auto [least, most] = std::ranges::minmax(rounds.rates);
  const double rate = Median(rounds.rates);
  std::printf(
      "%-9s %8lld B x %4lld  %-11s %7.3f GB/s median %7.3f least %7.3f most %6.1f %%  %4.0f ms of "
      "processors a GB\n",
      c.network ? "network" : "same-host", static_cast<long long>(c.object()),
      static_cast<long long>(c.count), what, rate / 1e9, least / 1e9, most / 1e9,
      100 * rate / Median(raw.rates), Median(rounds.work) * 1e3);
}

// Processes first: UCX does not live through a fork.
void Run(const Case& c) {
  const RedisPlace place;
  const Child owner([&](int out) { RunOwner(c, out); });
  const Child node([&](int out) { RunNode(c, out); });
  std::optional<Child> server;
  if (access(kRedisServer, X_OK) == 0) server.emplace([&](int out) { RunRedis(place, out); });
  Raw raw(c, owner.said);
  (void)raw.Round(c);  // Connects.
  Store store(c, node.said);
  std::vector<std::unique_ptr<Redis>> redis;
  for (const bool tcp : {false, true}) {
    if (server) redis.push_back(std::make_unique<Redis>(c, place, tcp));
  }
  Loads whole(c, node.said, false), layers(c, node.said, true);
  Rounds of_raw, of_store, of_redis[2], of_whole, of_layers;
  for (int i = 0; i < c.rounds; ++i) {
    of_raw.Add(c, owner, raw);
    of_store.Add(c, node, store);
    of_whole.Add(c, node, whole);
    of_layers.Add(c, node, layers);
    for (size_t k = 0; k < redis.size(); ++k) of_redis[k].Add(c, *server, *redis[k]);
  }
  Print(c, "transport", of_raw, of_raw);
  Print(c, "store", of_store, of_raw);
  Print(c, "load, whole", of_whole, of_raw);
  std::printf("%37s begins at %.0f %%\n", "", 100 * Median(whole.begun()));
  Print(c, "load, layers", of_layers, of_raw);
  std::printf("%37s begins at %.0f %%\n", "", 100 * Median(layers.begun()));
  for (size_t k = 0; k < redis.size(); ++k) {
    Print(c, k == 0 ? "redis, unix" : "redis, tcp", of_redis[k], of_raw);
    std::printf("%37s the store is %.1f times as fast\n", "",
                Median(of_store.rates) / Median(of_redis[k].rates));
  }
  std::fflush(stdout);
}

}  // namespace
}  // namespace divisi

// So that the next case forks from a process without UCX.
static int RunApart(const divisi::Case& c) {
  const pid_t pid = fork();
  if (pid == 0) {
    divisi::Run(c);
    return -1;
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

int main(int argc, char** argv) {
  divisi::Case given;
  bool tiny = false;
  std::vector<int64_t> layers{37376, 65536, 149504};  // 1, 1.75 and 4 MiB
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--tiny") tiny = true;
    if (name == "--network") given.network = true;
    if (i + 1 == argc) break;
    if (name == "--rounds") given.rounds = std::atoi(argv[i + 1]);
    if (name == "--count") given.count = std::atoll(argv[i + 1]);
    if (name == "--layer") layers = {std::atoll(argv[i + 1])};
  }
  if (tiny) {
    given.count = 4;
    given.rounds = 2;
    divisi::Run(given);
    return 0;
  }
  int status = 0;
  for (const int64_t layer : layers) {
    divisi::Case one = given;
    one.layer = layer;
    const int ended = RunApart(one);
    if (ended == -1) return 0;  // The child.
    status |= ended;
  }
  return status != 0;
}
