#include "divisi/sim/sim_events.h"

#include <utility>

namespace divisi {
namespace {

// Faults end 40 s before a run does: every repair has its time by then.
EventStreamOptions StreamOptions() {
  return {.reorder_wait = Seconds(0.05),
          .answer_wait = Seconds(0.5),
          .replay_wait = Seconds(2),
          .first_backoff = Seconds(0.1),
          .most_backoff = Seconds(1),
          .attempts = 3,
          .check_every = Seconds(1)};
}

}  // namespace

SimEvents::SimEvents(SimSchedule& schedule, Random& random, const SimWeather& weather,
                     Listener listener)
    : schedule_(schedule), random_(random), weather_(weather), listener_(std::move(listener)) {}

template <typename Fn>
void SimEvents::Later(FollowerId id, Seconds wait, Fn fn) {
  schedule_.In(wait, [this, id, fn = std::move(fn)] {
    const auto found = followers_.find(id);
    if (found == followers_.end()) return;
    fn(found->second);
    Take(id, found->second);
  });
}

// ---- Workers

// Small rings, so that replays and snapshots both are needed.
void SimEvents::Begin(NodeId life, size_t worker) {
  EventLog::Options options{
      .ring_batches = static_cast<size_t>(random_.Between(1, 12)),
      .batch_blocks = static_cast<size_t>(random_.Between(1, 8)),
      .pending_blocks = static_cast<size_t>(random_.Between(4, 64)),
  };
  sources_[life] = {worker, std::make_unique<EventLog>(options), false};
}

void SimEvents::End(NodeId life) {
  const auto found = sources_.find(life);
  if (found == sources_.end()) return;
  counters_.snapshots += static_cast<int64_t>(found->second.log->stats().snapshots);
  sources_.erase(found);
}

void SimEvents::Publish(NodeId life, const std::vector<KvEvent>& events) {
  const auto found = sources_.find(life);
  if (found == sources_.end() || events.empty()) return;
  Source& source = found->second;
  for (const KvEvent& event : events) source.log->Add(event);
  if (std::exchange(source.gathers, true)) return;
  schedule_.In(Seconds(0.01 * random_.Uniform()), [this, life] {
    const auto found = sources_.find(life);
    if (found != sources_.end()) Flush(found->second, life);
  });
}

void SimEvents::Flush(Source& source, NodeId life) {
  source.gathers = false;
  for (const NumberedBatch& batch : source.log->Flush(schedule_.now().value)) {
    for (auto& [id, follower] : followers_) {
      if (follower.life != life) continue;
      const bool lost = !Reaches(follower) || random_.Chance(weather_.drop);
      counters_.lost += lost;
      const int copies = lost ? 0 : random_.Chance(weather_.repeat) ? 2 : 1;
      for (int i = 0; i < copies; ++i) {
        Later(id, Delay(), [this, batch](Follower& to) {
          if (to.connected) to.stream.Live(batch.sequence, *batch.payload, schedule_.now());
        });
      }
    }
  }
}

// ---- Gateways

void SimEvents::Follow(size_t slot, NodeId life) {
  followers_.emplace(++last_, Follower{slot, life, EventStream(StreamOptions())});
}

void SimEvents::Add(const Follower& follower, Counters& sum) {
  const EventStreamStats stats = follower.stream.stats();
  sum.gaps += static_cast<int64_t>(stats.gaps);
  sum.replays += static_cast<int64_t>(stats.asks);
  sum.losses += static_cast<int64_t>(stats.losses);
}

void SimEvents::Unfollow(size_t slot, NodeId life) {
  std::erase_if(followers_, [&](const auto& each) {
    const bool meant = each.second.slot == slot && each.second.life == life;
    if (meant) Add(each.second, counters_);
    return meant;
  });
}

void SimEvents::GatewayGone(size_t slot) {
  std::erase_if(followers_, [&](const auto& each) {
    if (each.second.slot == slot) Add(each.second, counters_);
    return each.second.slot == slot;
  });
}

bool SimEvents::Reaches(const Follower& follower) const {
  const auto source = sources_.find(follower.life);
  return source != sources_.end() && !listener_.parted(source->second.worker, follower.slot);
}

void SimEvents::Tick() {
  for (auto& [id, follower] : followers_) {
    const bool reaches = Reaches(follower);
    // A connection that stands still is lost sooner or later.
    if (reaches && !follower.connected) {
      follower.connected = true;
      follower.stream.Connected(schedule_.now());
    } else if (!reaches && follower.connected && random_.Chance(0.05)) {
      follower.connected = false;
      follower.stream.Disconnected(schedule_.now());
    }
    if (schedule_.now() >= follower.stream.NextTick()) follower.stream.Tick(schedule_.now());
    Take(id, follower);
  }
}

void SimEvents::Take(FollowerId id, Follower& follower) {
  if (const auto ask = follower.stream.TakeAsk(); ask && !random_.Chance(weather_.drop)) {
    Later(id, Delay(), [this, id, ask = *ask](Follower&) { Answer(id, ask); });
  }
  for (const EventUpdate& update : follower.stream.TakeUpdates()) {
    listener_.heard(follower.slot, follower.life, update);
  }
}

// Its connection may end at any place.
void SimEvents::Answer(FollowerId id, const ReplayAsk& ask) {
  const Follower& follower = followers_.at(id);
  if (!Reaches(follower)) return;
  Source& source = sources_.at(follower.life);
  if (source.log->pending()) Flush(source, follower.life);
  const auto batches = source.log->Since(ask.from, schedule_.now().value);
  Seconds at;
  for (const NumberedBatch& batch : batches) {
    if (random_.Chance(weather_.drop)) return;
    at += Delay() * 0.1;
    Later(id, at, [this, batch, ask](Follower& to) {
      to.stream.Replayed(ask.id, batch.sequence, *batch.payload, schedule_.now());
    });
  }
  Later(id, at + Seconds(1e-6),
        [this, ask](Follower& to) { to.stream.ReplayEnded(ask.id, schedule_.now()); });
}

SimEvents::Counters SimEvents::counters() const {
  Counters sum = counters_;
  for (const auto& [id, follower] : followers_) Add(follower, sum);
  for (const auto& [life, source] : sources_) {
    sum.snapshots += static_cast<int64_t>(source.log->stats().snapshots);
  }
  return sum;
}

}  // namespace divisi
