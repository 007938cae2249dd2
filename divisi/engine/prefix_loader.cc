#include <algorithm>
#include <limits>
#include <utility>

#include "divisi/core/check.h"
#include "divisi/core/format.h"
#include "divisi/engine/prefix_loader_state.h"
#include "divisi/plan/kv_tiers.h"

namespace divisi {
namespace {

// A load's deadline is what computing its tokens takes, and at least this: the machine may be busy.
constexpr Seconds kLeastDeadline{0.25};
// Of all layers, those that may have to be there before computing follows, for pages of the pool to
// come by layers: where processors bound them, layers come at 0.5 to 0.75 of whole pages' rate
// (bench/RESULTS.md), so three quarters of the reading hidden is the least that pays.
constexpr double kMostPreload = 0.25;

// Requests next in the queue whose cached pages are watched: looking costs each step something.
constexpr size_t kWatched = 32;

template <typename T>
T Or(T measured, T assumed) {
  return measured.value > 0 ? measured : assumed;
}

}  // namespace

// ---- Requests in

int64_t PrefixLoader::State::Shareable(const Request& request) const {
  if (!scheduling.share_prefixes || request.prompt_logprobs >= 0) return 0;
  return static_cast<int64_t>(request.prompt.size() - 1) / kBlockTokens;
}

Result<void> PrefixLoader::State::Add(Request request, Seconds now) {
  RETURN_IF_ERROR(CheckRequest(scheduling, request));
  // Who waits for the pool's answer will need a place, too.
  if (const auto open = static_cast<int64_t>(questions.size()); scheduler.Room() <= open) {
    return Error{
        Code::kResourceExhausted,
        Format("{} requests are waiting, which is the limit; retry later", scheduling.max_waiting)};
  }
  const BlockKey root = RootKey(KeySpaceOf(scheduling, request));
  std::vector<BlockKey> keys;
  ExtendKeys(root, request.prompt, request.prompt.size() / kBlockTokens, keys);
  const auto shareable = static_cast<size_t>(Shareable(request));
  Candidate candidate{std::move(request), root, keys};
  const std::span<const BlockKey> usable(keys.data(), std::min(shareable, keys.size()));
  const int64_t cached = scheduler.CachedPages(usable);
  const auto next = static_cast<size_t>(cached);
  if (next == usable.size() || on_their_way.contains(keys[next])) {
    return AddAtOnce(std::move(candidate), now);
  }
  std::vector<Tier> run = tiers.Find(usable, cached);
  const bool peer = AddPeer(candidate, next, run);
  const size_t known = next + run.size();
  if (!options.tiers.pool || peer || known == usable.size()) {
    return Decide(std::move(candidate), run, now);
  }
  const uint64_t id = ++last_question;
  pool_questions.push_back({id, {usable.begin() + static_cast<int64_t>(known), usable.end()}});
  questions[id] = {std::move(candidate), static_cast<int64_t>(known), now + kAskPool};
  ++counts.asked;
  return {};
}

// Whether the peer's pages go on where those of the tiers end. The pool is not asked then: who
// named the peer has weighed both.
bool PrefixLoader::State::AddPeer(const Candidate& candidate, size_t from,
                                  std::vector<Tier>& run) const {
  const std::optional<PrefixPeer>& peer = candidate.request.peer;
  if (!options.peers || !peer) return false;
  const int64_t end = std::min(peer->pages, Shareable(candidate.request));
  const size_t before = run.size();
  for (auto page = static_cast<int64_t>(from + before); page < end; ++page) {
    if (tiers.Quarantined(candidate.keys[static_cast<size_t>(page)], Tier::kPeer)) break;
    run.push_back(Tier::kPeer);
  }
  return run.size() > before;
}

Result<void> PrefixLoader::State::AddAtOnce(Candidate candidate, Seconds now) {
  const RequestId id = candidate.request.id;
  const auto shareable = static_cast<size_t>(Shareable(candidate.request));
  const SessionState session = candidate.request.session;
  RETURN_IF_ERROR(scheduler.Add(std::move(candidate.request)));
  requests[id] = {.root = candidate.root,
                  .keys = std::move(candidate.keys),
                  .shareable = shareable,
                  .session = session,
                  .found = candidate.found};
  Waiting& waiting = requests.at(id);
  waiting.cached = static_cast<size_t>(scheduler.CachedPages(waiting.keys));
  tiers.HasFirst(id, static_cast<int64_t>(waiting.cached));
  watched.push_back(id);
  beyond.push_back(id);
  Expect(now);
  return {};
}

void PrefixLoader::State::Expect(Seconds now) {
  while (!beyond.empty() && tiers.Expect(beyond.front(), requests.at(beyond.front()).keys, now)) {
    beyond.pop_front();
  }
}

Seconds PrefixLoader::State::ReadTime(Tier tier) const {
  const BytesPerSecond rate = tier == Tier::kHost     ? Or(speeds.host, kAssumedSpeeds.host)
                              : tier == Tier::kDisk   ? Or(speeds.disk, kAssumedSpeeds.disk)
                              : tier == Tier::kRemote ? Or(speeds.remote, kAssumedSpeeds.remote)
                                                      : Or(speeds.peer, kAssumedSpeeds.peer);
  return options.page / rate;
}

Seconds PrefixLoader::State::ComputeTime(int64_t pages) const {
  return Or(speeds.per_token, kAssumedSpeeds.per_token) * static_cast<double>(pages * kBlockTokens);
}

// The first may take what there is: others compute meanwhile, and it would have to, too. None while
// who is next waits for pages: what is being loaded can't be taken away, and might always be there.
int64_t PrefixLoader::State::Room() const {
  if (scheduler.Blocked() || loads.size() >= options.most_loads) return 0;
  if (reserved == 0 && options.most_loading > 0) return std::numeric_limits<int64_t>::max();
  return std::max<int64_t>(options.most_loading - reserved, 0);
}

// How many of the run's first pages are worth reading: those that save the most.
int64_t PrefixLoader::State::Worth(const std::vector<Tier>& run) const {
  const Seconds compute = ComputeTime(1);
  Seconds gain = Seconds(0) - backlog;
  Seconds best;
  int64_t worth = 0;
  for (size_t i = 0; i < run.size(); ++i) {
    gain += compute - ReadTime(run[i]);
    if (gain <= best) continue;
    best = gain;
    worth = static_cast<int64_t>(i) + 1;
  }
  return worth;
}

// run: tiers of the pages that follow those which the pool holds.
Result<void> PrefixLoader::State::Decide(Candidate candidate, const std::vector<Tier>& run,
                                         Seconds now) {
  for (const Tier tier : run) ++candidate.found[static_cast<size_t>(tier)];
  int64_t worth = Worth(run);
  counts.not_worth += worth == 0 && !run.empty();
  if (worth == 0) return AddAtOnce(std::move(candidate), now);
  const auto usable = static_cast<size_t>(Shareable(candidate.request));
  const int64_t present = scheduler.CachedPages(std::span(candidate.keys).first(usable));
  // A small part now would keep it from the rest later.
  if (Room() <= worth / 2) return AddWithoutRoom(std::move(candidate), run, present, now);
  worth = std::min(worth, Room());
  const RequestId id = candidate.request.id;
  const std::optional<PrefixPeer>& peer = candidate.request.peer;
  auto load = scheduler.AddLoading(candidate.request, candidate.keys, present + worth);
  if (!load) {
    if (load.error().code != Code::kResourceExhausted) return load.error();
    return AddWithoutRoom(std::move(candidate), run, present, now);
  }
  requests[id] = {.root = candidate.root,
                  .keys = std::move(candidate.keys),
                  .shareable = usable,
                  .session = candidate.request.session,
                  .found = candidate.found,
                  .peer = peer ? peer->address : "",
                  .loading = worth,
                  .present = present};
  BeginLoad(*load, id, run, now);
  beyond.push_back(id);
  Expect(now);  // What is read is pinned by now.
  return {};
}

// run: as of Decide, of pages from `from` on.
Result<void> PrefixLoader::State::AddWithoutRoom(Candidate candidate, const std::vector<Tier>& run,
                                                 int64_t from, Seconds now) {
  const RequestId id = candidate.request.id;
  std::string peer = candidate.request.peer ? candidate.request.peer->address : "";
  RETURN_IF_ERROR(AddAtOnce(std::move(candidate), now));
  Waiting& waiting = requests.at(id);
  waiting.peer = std::move(peer);
  const auto away = std::ranges::find_if_not(run, IsOfTiers);
  if (away != run.end()) {
    waiting.away = *away;
    waiting.away_from = static_cast<size_t>(from + (away - run.begin()));
    waiting.away_until = static_cast<size_t>(from) + run.size();
  }
  ++counts.no_room;
  std::erase(watched, id);
  without_room.push_back(id);
  return {};
}

// Who waits with cached pages of which the last gave way is to be loaded: the tiers may have them.
void PrefixLoader::State::WatchCached() {
  if (!std::exchange(pages_removed, false) && !room_freed) return;
  const auto end = watched.begin() + static_cast<int64_t>(std::min(watched.size(), kWatched));
  const auto left = std::stable_partition(watched.begin(), end, [this](RequestId id) {
    Waiting& waiting = requests.at(id);
    const std::span<const BlockKey> keys = waiting.keys;
    if (waiting.cached > 0 && scheduler.CachedPages(keys.subspan(waiting.cached - 1, 1)) == 0) {
      tiers.HasFirst(id, scheduler.CachedPages(keys.first(waiting.cached)));
      without_room.push_back(id);
      room_freed = true;
      return false;
    }
    waiting.cached += static_cast<size_t>(scheduler.CachedPages(keys.subspan(waiting.cached)));
    return true;
  });
  watched.erase(left, end);
}

// Those that still wait for their turn are loaded as far as there is room again, who was first
// found to before others.
void PrefixLoader::State::LookAgain(Seconds now) {
  WatchCached();
  if (Room() <= 0 || !std::exchange(room_freed, false)) return;
  while (!without_room.empty() && Room() > 0) {
    if (!LoadLater(without_room.front(), now)) return;
    without_room.pop_front();
  }
}

// False: there is no room for it yet.
bool PrefixLoader::State::LoadLater(RequestId request, Seconds now) {
  Waiting& waiting = requests.at(request);
  const std::span<const BlockKey> keys(waiting.keys.data(), waiting.shareable);
  const int64_t present = scheduler.CachedPages(keys);
  const auto next = static_cast<size_t>(present);
  if (next == keys.size() || on_their_way.contains(keys[next])) {
    waiting.cached = next;
    watched.push_back(request);
    return true;
  }
  std::vector<Tier> run = tiers.Find(keys, present);
  const bool away = AddAway(waiting, next + run.size(), run);
  int64_t worth = Worth(run);
  if (worth <= 0) return true;
  if (Room() <= worth / 2) return false;
  worth = std::min(worth, Room());
  auto load = scheduler.LoadWaiting(request, present + worth);
  if (!load) return load.error().code != Code::kResourceExhausted;
  // What others have is not asked anew.
  std::fill_n(waiting.found.begin(), static_cast<size_t>(Tier::kRemote), 0);
  if (away) waiting.found[static_cast<size_t>(waiting.away)] = 0;
  for (const Tier tier : run) ++waiting.found[static_cast<size_t>(tier)];
  waiting.loading = worth;
  waiting.present = present;
  ++counts.loaded_later;
  BeginLoad(*load, request, run, now);
  return true;
}

// Whether what others had goes on at page `from`, where the tiers' run ends.
bool PrefixLoader::State::AddAway(const Waiting& waiting, size_t from,
                                  std::vector<Tier>& run) const {
  if (from < waiting.away_from) return false;
  const size_t before = run.size();
  for (size_t page = from; page < waiting.away_until; ++page) {
    if (tiers.Quarantined(waiting.keys[page], waiting.away)) break;
    run.push_back(waiting.away);
  }
  return run.size() > before;
}

void PrefixLoader::State::BeginLoad(const PrefixLoad& given, RequestId request,
                                    const std::vector<Tier>& run, Seconds now) {
  const std::vector<BlockKey>& keys = requests.at(request).keys;
  Load& load = loads[given.id];
  load.request = request;
  const auto pages = static_cast<int64_t>(given.pages.size());
  const Seconds most = std::max(kLeastDeadline, ComputeTime(pages));
  load.gate = std::make_shared<LayerGate>(most);
  for (size_t i = 0; i < given.pages.size(); ++i) {
    const BlockKey& key = keys[static_cast<size_t>(given.present) + i];
    load.pages.push_back({key, run[i], given.pages[i]});
    if (IsOfTiers(run[i])) tiers.Pin(key, run[i]);
    on_their_way.insert(key);
    load.read += ReadTime(run[i]);
  }
  reserved += pages;
  tiers.HasFirst(request, given.present + pages);
  PlanFollowing(load, backlog + load.read, now);
  backlog += load.read;
  const int most_preload = static_cast<int>(options.layers * kMostPreload);
  load_orders.push_back({.id = given.id,
                         .pages = load.pages,
                         .root = requests.at(request).root,
                         .position = given.present * kBlockTokens,
                         .deadline = now + most,
                         .gate = load.gate,
                         .by_layers = options.follow && load.preload <= most_preload,
                         .peer = requests.at(request).peer});
  ++counts.loads;
}

// Computing follows when it hides what is left to read: S_buf of section 9.5.2, in layers.
void PrefixLoader::State::PlanFollowing(Load& load, Seconds read, Seconds now) {
  if (!options.follow || options.layers < 2) return;
  const Waiting& waiting = requests.at(load.request);
  const auto prompt = static_cast<int64_t>(waiting.keys.size()) + 1;
  const int64_t left = prompt - waiting.present - static_cast<int64_t>(load.pages.size());
  const LayerwiseLoad times{
      .layers = options.layers, .read = read, .compute = ComputeTime(std::max<int64_t>(left, 1))};
  load.preload = std::min(times.LayersToHide(), options.layers);
  load.look_at = now + read * (static_cast<double>(load.preload) / options.layers);
}

// ---- The public face

PrefixLoader::PrefixLoader(Scheduler& scheduler, const SchedulerOptions& scheduling,
                           PrefixLoaderOptions options)
    : state_(std::make_unique<State>(scheduler, scheduling, std::move(options))) {
  CHECK(scheduling.report_pages, "the scheduler does not report its pages");
}
PrefixLoader::~PrefixLoader() = default;

Result<void> PrefixLoader::Add(Request request, Seconds now) {
  return state_->Add(std::move(request), now);
}
void PrefixLoader::SetSpeeds(const TierSpeeds& speeds) { state_->speeds = speeds; }
const TierSpeeds& PrefixLoader::speeds() const { return state_->speeds; }
Seconds PrefixLoader::lookup() const { return state_->lookup; }
std::array<int64_t, kSources> PrefixLoader::Found(RequestId request, int64_t cached) const {
  const auto at = state_->requests.find(request);
  if (at == state_->requests.end()) return {cached};
  std::array<int64_t, kSources> found = at->second.found;
  found[0] = std::max<int64_t>(cached - at->second.loading, 0);
  return found;
}
std::vector<LoadOrder> PrefixLoader::TakeLoads() { return std::exchange(state_->load_orders, {}); }
std::vector<uint64_t> PrefixLoader::TakeUnwantedLoads() {
  return std::exchange(state_->unwanted, {});
}
std::vector<TierAction> PrefixLoader::TakeActions() { return std::exchange(state_->actions, {}); }
std::vector<PoolQuestion> PrefixLoader::TakeQuestions() {
  return std::exchange(state_->pool_questions, {});
}
std::vector<PageChange> PrefixLoader::TakePageChanges() {
  return std::exchange(state_->changes, {});
}
std::vector<TierEvent> PrefixLoader::TakeTierEvents() { return state_->tiers.TakeEvents(); }
int64_t PrefixLoader::asking() const { return static_cast<int64_t>(state_->questions.size()); }
TierManager& PrefixLoader::tiers() { return state_->tiers; }

PrefixLoaderStats PrefixLoader::stats() const {
  PrefixLoaderStats stats = state_->counts;
  stats.tiers = state_->tiers.stats();
  stats.loading_pages = state_->reserved;
  stats.asking = asking();
  return stats;
}

void PrefixLoader::Verify() const {
  state_->tiers.Verify();
  int64_t reserved = 0;
  int64_t with_pages = 0;
  for (const auto& [id, waiting] : state_->requests) {
    reserved += waiting.loading;
    with_pages += waiting.loading > 0;
  }
  CHECK(reserved == state_->reserved, "{} pages reserved, not {}", reserved, state_->reserved);
  CHECK(state_->reserved <= state_->options.most_loading || with_pages == 1);
  CHECK(state_->counts.pages_used <= state_->counts.pages_read);
}

}  // namespace divisi
