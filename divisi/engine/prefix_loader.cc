#include "divisi/engine/prefix_loader.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "divisi/core/check.h"
#include "divisi/core/format.h"
#include "divisi/plan/kv_tiers.h"

namespace divisi {
namespace {

// Until something was measured: a modern machine's order of magnitude, so that the first reads are
// tried and measured.
constexpr TierSpeeds kAssumed{.host = BytesPerSecond(8e9),
                              .disk = BytesPerSecond(1e9),
                              .remote = BytesPerSecond(1e9),
                              .per_token = Seconds(1e-3)};
// A load's deadline is what computing its tokens takes, and at least this: the machine may be busy.
constexpr Seconds kLeastDeadline{0.25};
// How often a load that is to be followed is looked at.
constexpr Seconds kLookAgain{0.002};

template <typename T>
T Or(T measured, T assumed) {
  return measured.value > 0 ? measured : assumed;
}

}  // namespace

struct PrefixLoader::State {
  State(Scheduler& s, const SchedulerOptions& scheduling_options, PrefixLoaderOptions given)
      : scheduler(s),
        scheduling(scheduling_options),
        options(std::move(given)),
        tiers(options.tiers) {}

  // A request that the scheduler has not got yet.
  struct Candidate {
    Request request;
    BlockKey root;
    std::vector<BlockKey> keys;  // Of the prompt's full pages.
  };
  // One that it has.
  struct Waiting {
    BlockKey root;
    std::vector<BlockKey> keys;
    int64_t loading = 0;  // Pages that it was given room for.
    int64_t loaded = 0;   // Of those, that came.
    int64_t present = 0;  // Pages that the pool held before.
    int64_t answer_tokens = 0;
    bool started = false;
    bool lost = false;  // What was loaded came too late for its step.
  };
  struct Question {
    Candidate candidate;
    int64_t from = 0;  // keys[from...] were asked for.
    Seconds until;
  };
  struct Load {
    RequestId request = 0;
    std::vector<LoadOrder::Page> pages;
    std::shared_ptr<LayerGate> gate;
    int preload = 0;                 // Layers that must be there before computing follows.
    std::optional<Seconds> look_at;  // None: not to be followed (any more).
  };

  Result<void> Add(Request request, Seconds now);
  Result<void> AddAtOnce(Candidate candidate, Seconds now);
  void Expect(Seconds now);
  Result<void> Decide(Candidate candidate, const std::vector<Tier>& run, Seconds now);
  int64_t Worth(const std::vector<Tier>& run) const;
  Seconds ReadTime(Tier tier) const;
  Seconds ComputeTime(int64_t pages) const;
  void BeginLoad(const PrefixLoad& load, RequestId request, const std::vector<Tier>& run,
                 Seconds now);
  void PlanFollowing(Load& load, Seconds read, Seconds now);
  int64_t Shareable(const Request& request) const;
  void Forget(RequestId request, Seconds now);
  void Start(Waiting& waiting, RequestId request, Seconds now);
  void TakeChanges(Seconds now);
  void TakeTierActions(Seconds now);
  void Follow(Seconds now);
  void GiveUpQuestions(Seconds now);

  Scheduler& scheduler;
  const SchedulerOptions scheduling;
  const PrefixLoaderOptions options;
  TierManager tiers;
  TierSpeeds speeds;
  std::map<RequestId, Waiting> requests;
  std::deque<RequestId> beyond;  // Those that the tiers do not expect yet, in queue order
  std::map<uint64_t, Question> questions;
  uint64_t last_question = 0;
  std::map<uint64_t, Load> loads;
  std::unordered_set<BlockKey, BlockKeyHash> on_their_way;  // Keys of loads
  std::map<uint64_t, BlockId> saving;                       // Device pages, pinned, by copy
  Bytes backlog;                                            // Of loads
  int64_t reserved = 0;                                     // Of options.most_loading
  std::vector<LoadOrder> load_orders;
  std::vector<TierAction> actions;
  std::vector<PoolQuestion> pool_questions;
  std::vector<PageChange> changes;
  std::vector<uint64_t> pending_answers;  // Questions that nobody answered
  PrefixLoaderStats counts;
};

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
  const size_t known = next + run.size();
  if (!options.tiers.pool || known == usable.size()) {
    return Decide(std::move(candidate), run, now);
  }
  const uint64_t id = ++last_question;
  pool_questions.push_back({id, {usable.begin() + static_cast<int64_t>(known), usable.end()}});
  questions[id] = {std::move(candidate), static_cast<int64_t>(known), now + kAskPool};
  ++counts.asked;
  return {};
}

Result<void> PrefixLoader::State::AddAtOnce(Candidate candidate, Seconds now) {
  const RequestId id = candidate.request.id;
  RETURN_IF_ERROR(scheduler.Add(std::move(candidate.request)));
  requests[id] = {.root = candidate.root, .keys = std::move(candidate.keys)};
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
  const BytesPerSecond rate = tier == Tier::kHost   ? Or(speeds.host, kAssumed.host)
                              : tier == Tier::kDisk ? Or(speeds.disk, kAssumed.disk)
                                                    : Or(speeds.remote, kAssumed.remote);
  return options.page / rate;
}

Seconds PrefixLoader::State::ComputeTime(int64_t pages) const {
  return Or(speeds.per_token, kAssumed.per_token) * static_cast<double>(pages * kBlockTokens);
}

// How many of the run's first pages are worth reading: those that save the most.
int64_t PrefixLoader::State::Worth(const std::vector<Tier>& run) const {
  const Seconds compute = ComputeTime(1);
  Seconds gain = Seconds(0) - backlog / Or(speeds.disk, kAssumed.disk);
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
  int64_t worth = Worth(run);
  counts.not_worth += worth == 0 && !run.empty();
  if (worth == 0) return AddAtOnce(std::move(candidate), now);
  const auto usable = static_cast<size_t>(Shareable(candidate.request));
  const int64_t present = scheduler.CachedPages(std::span(candidate.keys).first(usable));
  worth = std::min(worth, options.most_loading - reserved);
  if (worth <= 0) {
    ++counts.no_room;
    return AddAtOnce(std::move(candidate), now);
  }
  const RequestId id = candidate.request.id;
  auto load = scheduler.AddLoading(candidate.request, candidate.keys, present + worth);
  if (!load) {
    if (load.error().code != Code::kResourceExhausted) return load.error();
    ++counts.no_room;
    return AddAtOnce(std::move(candidate), now);
  }
  requests[id] = {.root = candidate.root,
                  .keys = std::move(candidate.keys),
                  .loading = worth,
                  .present = present};
  reserved += worth;
  BeginLoad(*load, id, run, now);
  beyond.push_back(id);
  Expect(now);  // What is read is pinned by now.
  return {};
}

void PrefixLoader::State::BeginLoad(const PrefixLoad& given, RequestId request,
                                    const std::vector<Tier>& run, Seconds now) {
  const std::vector<BlockKey>& keys = requests.at(request).keys;
  Load& load = loads[given.id];
  load.request = request;
  load.gate = std::make_shared<LayerGate>();
  Seconds read = backlog / Or(speeds.disk, kAssumed.disk);
  for (size_t i = 0; i < given.pages.size(); ++i) {
    const BlockKey& key = keys[static_cast<size_t>(given.present) + i];
    load.pages.push_back({key, run[i], given.pages[i]});
    if (run[i] != Tier::kRemote) tiers.Pin(key, run[i]);
    on_their_way.insert(key);
    read += ReadTime(run[i]);
  }
  const auto pages = static_cast<int64_t>(load.pages.size());
  backlog += options.page * pages;
  PlanFollowing(load, read, now);
  load_orders.push_back({.id = given.id,
                         .pages = load.pages,
                         .root = requests.at(request).root,
                         .position = given.present * kBlockTokens,
                         .deadline = now + std::max(kLeastDeadline, ComputeTime(pages)),
                         .gate = load.gate});
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

// ---- What happens to requests

void PrefixLoader::State::Start(Waiting& waiting, RequestId request, Seconds now) {
  waiting.started = true;
  reserved -= std::exchange(waiting.loading, 0);
  counts.pages_used += waiting.loaded;
  tiers.Forget(request, now);
  std::erase(beyond, request);
  tiers.Used(waiting.keys);
}

void PrefixLoader::State::Forget(RequestId request, Seconds now) {
  const auto found = requests.find(request);
  if (found == requests.end()) return;
  Waiting& waiting = found->second;
  reserved -= waiting.loading;
  if (waiting.started) {
    tiers.Ended(waiting.keys, waiting.answer_tokens, SessionState::kUnknown);
  } else {
    tiers.Forget(request, now);
    std::erase(beyond, request);
  }
  requests.erase(found);
}

bool PrefixLoader::Cancel(RequestId request, Seconds now) {
  State& s = *state_;
  s.Forget(request, now);
  return std::erase_if(s.questions, [&](const auto& question) {
           return question.second.candidate.request.id == request;
         }) > 0;
}

void PrefixLoader::Note(const std::vector<SchedulerEvent>& events, Seconds now) {
  State& s = *state_;
  for (const SchedulerEvent& event : events) {
    const auto found = s.requests.find(event.request);
    if (found == s.requests.end()) continue;
    switch (event.kind) {
      case SchedulerEvent::Kind::kScheduled:
        s.Start(found->second, event.request, now);
        break;
      case SchedulerEvent::Kind::kLost:
        s.counts.pages_used -= found->second.loaded;
        found->second.loaded = 0;
        found->second.lost = true;
        break;
      case SchedulerEvent::Kind::kToken:
        ++found->second.answer_tokens;
        break;
      case SchedulerEvent::Kind::kFinished:
      case SchedulerEvent::Kind::kHeld:  // Its answer is another worker's.
        s.Forget(event.request, now);
        break;
      default:
        break;
    }
  }
}

// ---- What ends

void PrefixLoader::LoadEnded(const LoadOutcome& outcome, Seconds now) {
  State& s = *state_;
  const auto found = s.loads.find(outcome.id);
  CHECK(found != s.loads.end(), "load {} is not under way", outcome.id);
  const State::Load load = std::move(found->second);
  s.loads.erase(found);
  for (const LoadOrder::Page& page : load.pages) {
    if (page.tier != Tier::kRemote) s.tiers.Unpin(page.key, page.tier);
    s.on_their_way.erase(page.key);
  }
  for (const LoadOutcome::Bad& bad : outcome.bad) {
    if (bad.tier != Tier::kRemote) s.tiers.Bad(bad.key, bad.tier);
  }
  const auto pages = static_cast<int64_t>(load.pages.size());
  s.backlog = s.backlog - s.options.page * pages;
  s.counts.loads_failed += outcome.pages < pages;
  s.counts.pages_read += outcome.pages;
  if (outcome.pages < pages) load.gate->Fail();
  if (const auto request = s.requests.find(load.request); request != s.requests.end()) {
    // Those that did not come need no room any more, nor does who runs already.
    State::Waiting& waiting = request->second;
    if (!waiting.started) {
      s.reserved -= waiting.loading - outcome.pages;
      waiting.loading = outcome.pages;
    } else if (!waiting.lost) {
      s.counts.pages_used += outcome.pages;
    }
    if (!waiting.lost) waiting.loaded = outcome.pages;
  }
  s.scheduler.EndLoad(outcome.id, outcome.pages);
  (void)now;
}

void PrefixLoader::SaveEnded(uint64_t id, bool ok, Seconds now) {
  State& s = *state_;
  if (const auto found = s.saving.find(id); found != s.saving.end()) {
    s.scheduler.UnpinPage(found->second);
    s.saving.erase(found);
  }
  s.tiers.Done(id, ok, now);
}

void PrefixLoader::PoolAnswered(uint64_t id, const std::vector<bool>& have, Seconds now) {
  State& s = *state_;
  const auto found = s.questions.find(id);
  if (found == s.questions.end()) return;
  State::Question question = std::move(found->second);
  s.questions.erase(found);
  s.counts.unanswered += have.empty();
  State::Candidate& candidate = question.candidate;
  const auto usable = static_cast<size_t>(s.Shareable(candidate.request));
  const std::span<const BlockKey> keys = std::span(candidate.keys).first(usable);
  const int64_t cached = s.scheduler.CachedPages(keys);
  std::vector<Tier> run = s.tiers.Find(keys, cached);
  // Where the tiers' run ends the pool's may go on: the question began at the latest there.
  size_t next = static_cast<size_t>(cached) + run.size();
  for (; next < usable && next >= static_cast<size_t>(question.from); ++next) {
    const size_t asked = next - static_cast<size_t>(question.from);
    if (asked >= have.size() || !have[asked]) break;
    run.push_back(Tier::kRemote);
  }
  const auto first = static_cast<size_t>(cached);
  const bool coming = first < usable && s.on_their_way.contains(keys[first]);
  const auto added =
      coming ? s.AddAtOnce(std::move(candidate), now) : s.Decide(std::move(candidate), run, now);
  // It was checked when it came, and questions count as waiting.
  CHECK(added.ok(), "{}", added.error().message);
}

void PrefixLoader::State::GiveUpQuestions(Seconds now) {
  std::vector<uint64_t> late;
  for (const auto& [id, question] : questions) {
    if (now >= question.until) late.push_back(id);
  }
  pending_answers.insert(pending_answers.end(), late.begin(), late.end());
}

void PrefixLoader::State::Follow(Seconds now) {
  for (auto& [id, load] : loads) {
    if (!load.look_at || now < *load.look_at) continue;
    if (load.gate->failed()) {
      load.look_at.reset();
    } else if (load.gate->opened() >= load.preload) {
      load.look_at.reset();
      scheduler.FollowLoad(id, load.gate);
    } else {
      load.look_at = now + kLookAgain;
    }
  }
}

// ---- Pages that became complete

void PrefixLoader::State::TakeChanges(Seconds now) {
  for (PageChange& change : scheduler.TakePageChanges()) {
    if (change.kind == PageChange::Kind::kStored && !change.loaded) {
      tiers.Complete({.key = change.key,
                      .parent = change.parent,
                      .root = change.root,
                      .position = change.position / kBlockTokens},
                     change.block, now);
    }
    changes.push_back(std::move(change));
  }
}

// A page that was to be saved and has gone since is no loss: the next that has it saves it.
void PrefixLoader::State::TakeTierActions(Seconds now) {
  for (TierAction& action : tiers.TakeActions()) {
    if (action.kind == TierAction::Kind::kCopy && action.from == Tier::kDevice) {
      if (!scheduler.PinPage(action.block, action.page.key)) {
        tiers.Done(action.id, false, now);
        continue;
      }
      saving[action.id] = action.block;
    }
    actions.push_back(std::move(action));
  }
}

void PrefixLoader::Tick(Seconds now) {
  State& s = *state_;
  s.GiveUpQuestions(now);
  for (const uint64_t id : std::exchange(s.pending_answers, {})) PoolAnswered(id, {}, now);
  s.Follow(now);
  s.Expect(now);
  s.TakeChanges(now);
  s.TakeTierActions(now);
}

std::optional<Seconds> PrefixLoader::NextTimer() const {
  std::optional<Seconds> next;
  const auto at = [&](Seconds time) { next = next ? std::min(*next, time) : time; };
  for (const auto& [id, question] : state_->questions) at(question.until);
  for (const auto& [id, load] : state_->loads) {
    if (load.look_at) at(*load.look_at);
  }
  return next;
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
std::vector<LoadOrder> PrefixLoader::TakeLoads() { return std::exchange(state_->load_orders, {}); }
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
  for (const auto& [id, waiting] : state_->requests) reserved += waiting.loading;
  CHECK(reserved == state_->reserved, "{} pages reserved, not {}", reserved, state_->reserved);
  CHECK(state_->reserved <= state_->options.most_loading || state_->options.most_loading == 0);
  CHECK(state_->counts.pages_used <= state_->counts.pages_read);
}

}  // namespace divisi
