#include <algorithm>
#include <utility>

#include "divisi/core/check.h"
#include "divisi/engine/prefix_loader_state.h"

namespace divisi {
namespace {

// How often a load that is to be followed is looked at.
constexpr Seconds kLookAgain{0.002};
// What a new time of the pool's answer counts.
constexpr double kNewLookup = 0.1;

}  // namespace

// ---- What happens to requests

void PrefixLoader::State::Start(Waiting& waiting, RequestId request, Seconds now) {
  waiting.started = true;
  room_freed = true;
  std::erase(without_room, request);
  std::erase(watched, request);
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
  room_freed = true;
  std::erase(without_room, request);
  std::erase(watched, request);
  reserved -= waiting.loading;
  if (waiting.started) {
    tiers.Ended(waiting.keys, waiting.answer_tokens, waiting.session);
  } else {
    tiers.Forget(request, now);
    std::erase(beyond, request);
    for (const auto& [id, load] : loads) {
      if (load.request == request) unwanted.push_back(id);
    }
  }
  requests.erase(found);
}

// What was loaded for them others needed: it is loaded again when there is room before their turn.
void PrefixLoader::State::TakeStripped() {
  for (const RequestId id : scheduler.TakeStripped()) {
    const auto found = requests.find(id);
    if (found == requests.end() || found->second.started) continue;
    Waiting& waiting = found->second;
    reserved -= std::exchange(waiting.loading, 0);
    waiting.loaded = waiting.present = 0;
    without_room.push_back(id);
    room_freed = true;
  }
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
  s.TakeStripped();
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
        for (auto& [id, load] : s.loads) {
          load.used |= load.request == event.request && !found->second.lost;
        }
        s.Forget(event.request, now);
        break;
      default:
        break;
    }
  }
}

// ---- What ends

void PrefixLoader::LoadEnded(const LoadOutcome& outcome) {
  State& s = *state_;
  const auto found = s.loads.find(outcome.id);
  CHECK(found != s.loads.end(), "load {} is not under way", outcome.id);
  const State::Load load = std::move(found->second);
  s.loads.erase(found);
  for (const LoadOrder::Page& page : load.pages) {
    if (IsOfTiers(page.tier)) s.tiers.Unpin(page.key, page.tier);
    s.on_their_way.erase(page.key);
  }
  for (const LoadOutcome::Bad& bad : outcome.bad) {
    if (bad.tier == Tier::kRemote) s.tiers.PoolHas(bad.key, false);
    if (bad.damaged || IsOfTiers(bad.tier)) s.tiers.Bad(bad.key, bad.tier);
  }
  const auto pages = static_cast<int64_t>(load.pages.size());
  // Sums of other orders differ in their last digits.
  s.backlog = s.loads.empty() ? Seconds(0) : s.backlog - load.read;
  s.room_freed = true;
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
    for (auto page = load.pages.begin() + outcome.pages; page != load.pages.end(); ++page) {
      --waiting.found[static_cast<size_t>(page->tier)];
    }
  } else if (load.used) {
    s.counts.pages_used += outcome.pages;
  }
  s.scheduler.EndLoad(outcome.id, outcome.pages);
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
  const Seconds took = now - (question.until - kAskPool);
  if (!have.empty()) s.lookup += (took - s.lookup) * (s.lookup == Seconds(0) ? 1 : kNewLookup);
  State::Candidate& candidate = question.candidate;
  const auto usable = static_cast<size_t>(s.Shareable(candidate.request));
  const std::span<const BlockKey> keys = std::span(candidate.keys).first(usable);
  for (size_t i = 0; i < have.size(); ++i) {
    s.tiers.PoolHas(candidate.keys[static_cast<size_t>(question.from) + i], have[i]);
  }
  const int64_t cached = s.scheduler.CachedPages(keys);
  std::vector<Tier> run = s.tiers.Find(keys, cached);
  // Where the tiers' run ends the pool's may go on: the question began at the latest there.
  size_t next = static_cast<size_t>(cached) + run.size();
  for (; next < usable && next >= static_cast<size_t>(question.from); ++next) {
    const size_t asked = next - static_cast<size_t>(question.from);
    if (asked >= have.size() || !have[asked]) break;
    if (s.tiers.Quarantined(keys[next], Tier::kRemote)) break;
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
    pages_removed = pages_removed || change.kind == PageChange::Kind::kRemoved;
    // What was loaded from the disk, the pool or a peer is saved, too: it may be wanted again soon.
    if (change.kind == PageChange::Kind::kStored) {
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
  for (auto some = tiers.TakeActions(); !some.empty(); some = tiers.TakeActions()) {
    for (TierAction& action : some) {
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
}

void PrefixLoader::Tick(Seconds now) {
  State& s = *state_;
  s.GiveUpQuestions(now);
  for (const uint64_t id : std::exchange(s.pending_answers, {})) PoolAnswered(id, {}, now);
  s.Follow(now);
  s.TakeStripped();
  s.TakeChanges(now);
  s.LookAgain(now);
  s.Expect(now);
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

}  // namespace divisi
