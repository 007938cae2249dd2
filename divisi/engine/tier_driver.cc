#include "divisi/engine/tier_driver.h"

#include <array>
#include <mutex>
#include <utility>

#include "divisi/engine/tier_complaints.h"
#include "divisi/kv/tier_rates.h"

namespace divisi {
namespace {

// How long a disk's unused allowance of writes may be saved up.
constexpr Seconds kBurst{3600};
constexpr Seconds kRatedLife{5 * 365 * 86400.0};

}  // namespace

struct TierDriver::State {
  TierDriverOptions options;
  std::shared_ptr<HostStore> host;
  std::shared_ptr<DiskStore> disk;
  std::shared_ptr<RemotePageStore> remote, peers;
  DiskScan found;
  std::array<RecentRate, kSources> recent;
  std::mutex mutex;
  std::function<void()> wake;         // Guarded by mutex.
  std::unique_ptr<RemoteIndex> pool;  // With remote
  std::unique_ptr<TierIo> io;
  std::optional<TierComplaints> complaints;

  size_t page() const { return static_cast<size_t>(options.shape.PayloadBytes()); }
  std::span<std::byte> PageAt(BlockId block) const {
    return options.device.subspan(static_cast<size_t>(block) * page(), page());
  }
  void Wake() {
    const std::lock_guard lock(mutex);
    if (wake) wake();
  }
  Result<void> OpenStores(Logger& logger);
  void OpenPool();
  void TakeResults(PrefixLoader& loader, Seconds now);
  TierSpeeds Speeds(Seconds per_token, Seconds now);
  void Begin(PrefixLoader& loader, LoadOrder order);
  void Begin(PrefixLoader& loader, const TierAction& action, Seconds now);
};

Result<void> TierDriver::State::OpenStores(Logger& logger) {
  if (options.host.value > 0) {
    ASSIGN_OR_RETURN(host, HostStore::Create(options.shape, options.host));
  }
  if (options.disk.empty()) return {};
  ASSIGN_OR_RETURN(std::unique_ptr<DiskStore> store, DiskStore::Open({.directory = options.disk,
                                                                      .budget = options.disk_size,
                                                                      .shape = options.shape,
                                                                      .model = options.model},
                                                                     *options.disk_calls, logger));
  // A thread that hangs in one of the calls is left behind with the store, and so are the calls.
  DiskStore* const opened = store.release();
  disk =
      std::shared_ptr<DiskStore>(opened, [calls = options.disk_calls](DiskStore* s) { delete s; });
  found = disk->TakeScan();
  return {};
}

void TierDriver::State::OpenPool() {
  const RemoteStoreOptions terms{.shape = options.shape, .model = options.model};
  if (options.peers) peers = std::make_shared<RemotePageStore>(options.peers, terms);
  if (!options.pool) return;
  remote = std::make_shared<RemotePageStore>(options.pool, terms);
  pool = std::make_unique<RemoteIndex>(options.pool, kAskPool);
  pool->WakeBy([this] { Wake(); });
}

Result<std::unique_ptr<TierDriver>> TierDriver::Open(TierDriverOptions options, Logger& logger) {
  auto state = std::make_unique<State>();
  state->options = std::move(options);
  state->complaints.emplace(logger);
  RETURN_IF_ERROR(state->OpenStores(logger));
  state->OpenPool();
  const TierDriverOptions& o = state->options;
  state->io = std::make_unique<TierIo>(TierIoOptions{.stores = {.host = state->host,
                                                                .disk = state->disk,
                                                                .remote = state->remote,
                                                                .peer = state->peers},
                                                     .terms = {.shape = o.shape, .model = o.model},
                                                     .wake = [s = state.get()] { s->Wake(); },
                                                     .clock = o.clock});
  return std::unique_ptr<TierDriver>(new TierDriver(std::move(state)));
}

TierDriver::TierDriver(std::unique_ptr<State> state) : state_(std::move(state)) {}
TierDriver::~TierDriver() = default;

void TierDriver::WakeBy(std::function<void()> wake) {
  const std::lock_guard lock(state_->mutex);
  state_->wake = std::move(wake);
}

PrefixLoaderOptions TierDriver::LoaderOptions() const {
  const State& s = *state_;
  const Bytes page(s.options.shape.PayloadBytes());
  PrefixLoaderOptions options{.page = page, .layers = s.options.shape.layers};
  if (s.host) options.tiers.host_pages = s.host->stats().slots;
  if (s.disk) {
    options.tiers.disk_pages = s.options.disk_size.value / s.disk->PageBytes().value;
    const Endurance endurance{.capacity = s.options.disk_size,
                              .writes_per_day = s.options.disk_writes_per_day,
                              .rated_life = kRatedLife};
    options.tiers.budget = BudgetOf(endurance, page, kBurst);
  }
  options.tiers.disk_writes = s.options.disk_writes;
  options.most_loads = TierIoOptions{}.most_loads;
  options.tiers.pool = s.remote != nullptr;
  options.peers = s.peers != nullptr;
  options.most_loading = static_cast<int64_t>(s.options.device.size() / s.page()) * 3 / 4;
  return options;
}

void TierDriver::Restore(PrefixLoader& loader) {
  State& s = *state_;
  for (const StoredPage& page : std::exchange(s.found, {}).pages) {
    const PageHeader& header = page.header;
    const bool taken = loader.tiers().Restore({.key = header.key,
                                               .parent = header.parent,
                                               .root = header.root,
                                               .position = header.position / kBlockTokens});
    if (!taken) s.io->Remove(Tier::kDisk, header.key);
  }
}

void TierDriver::Carry(PrefixLoader& loader, Seconds per_token, Seconds now) {
  State& s = *state_;
  s.TakeResults(loader, now);
  loader.SetSpeeds(s.Speeds(per_token, now));
  loader.Tick(now);
  for (LoadOrder& order : loader.TakeLoads()) s.Begin(loader, std::move(order));
  for (const uint64_t load : loader.TakeUnwantedLoads()) s.io->Cancel(load);
  for (const TierAction& action : loader.TakeActions()) s.Begin(loader, action, now);
  for (PoolQuestion& question : loader.TakeQuestions()) {
    s.pool->Ask(question.id, std::move(question.keys));
  }
}

void TierDriver::State::TakeResults(PrefixLoader& loader, Seconds now) {
  if (remote) {
    for (const BlockKey& key : remote->TakeLostCopies()) loader.tiers().PoolLostCopy(key);
  }
  for (const LoadDone& done : io->TakeLoads()) {
    LoadOutcome outcome{.id = done.id, .pages = done.pages_ok};
    for (const BadPage& bad : done.bad) {
      complaints->Unread(bad, now);
      if (!SaysOfPage(bad.tier, bad.code)) continue;
      const bool damaged = bad.code != Code::kNotFound;
      if (bad.tier == Tier::kRemote && damaged) io->Remove(bad.tier, bad.key);
      outcome.bad.push_back({bad.key, bad.tier, damaged});
    }
    loader.LoadEnded(outcome);
  }
  for (const SaveDone& done : io->TakeSaves()) {
    complaints->Unsaved(done, now);
    loader.SaveEnded(done.id, done.ok, now);
    if (done.source_bad) loader.tiers().Bad(done.key, done.from);
  }
  if (!pool) return;
  for (const RemoteIndex::Answer& answer : pool->TakeAnswers()) {
    loader.PoolAnswered(answer.id, answer.have, now);
  }
}

TierSpeeds TierDriver::State::Speeds(Seconds per_token, Seconds now) {
  const TierIoStats stats = io->stats();
  const auto rate = [&](Tier tier) {
    const auto index = static_cast<size_t>(tier);
    return recent[index].Of(stats.tiers[index].read, stats.tiers[index].read_rate, now);
  };
  return {.host = rate(Tier::kHost),
          .disk = rate(Tier::kDisk),
          .remote = rate(Tier::kRemote),
          .peer = rate(Tier::kPeer),
          .per_token = per_token};
}

void TierDriver::State::Begin(PrefixLoader& loader, LoadOrder order) {
  PageLoad load{.id = order.id,
                .root = order.root,
                .position = order.position,
                .deadline = order.deadline,
                .gate = order.gate,
                .by_layers = order.by_layers};
  std::vector<BlockKey> at_peer;
  for (const LoadOrder::Page& page : order.pages) {
    load.pages.push_back({page.key, page.tier, PageAt(page.block)});
    if (page.tier == Tier::kPeer) at_peer.push_back(page.key);
  }
  if (!at_peer.empty()) options.peers->Direct(at_peer, order.peer);
  if (!io->Load(std::move(load))) loader.LoadEnded({.id = order.id});
}

void TierDriver::State::Begin(PrefixLoader& loader, const TierAction& action, Seconds now) {
  if (action.kind == TierAction::Kind::kRemove) return io->Remove(action.from, action.page.key);
  PageSave save{.id = action.id,
                .header = {.shape = options.shape,
                           .position = action.page.position * kBlockTokens,
                           .key = action.page.key,
                           .parent = action.page.parent,
                           .root = action.page.root,
                           .model = options.model},
                .from = action.from,
                .to = action.to};
  if (action.from == Tier::kDevice) save.payload = PageAt(action.block);
  if (!io->Save(std::move(save))) loader.SaveEnded(action.id, false, now);
}

TierDriverStats TierDriver::stats() const {
  const State& s = *state_;
  TierDriverStats stats{.io = s.io->stats()};
  if (s.host) stats.host = s.host->stats();
  if (s.disk) stats.disk = s.disk->stats();
  if (s.remote) stats.pool = s.remote->stats();
  if (s.peers) stats.peers = s.peers->stats();
  return stats;
}

std::shared_ptr<HostStore> TierDriver::host() const { return state_->host; }

}  // namespace divisi
