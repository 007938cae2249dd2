#include "divisi/kv/store_link.h"

#include <algorithm>
#include <utility>

#include "divisi/core/format.h"
#include "divisi/kv/store_node.h"

namespace divisi {
namespace {

// Deadlines are looked at this often: they are of tens of milliseconds and more.
constexpr Seconds kCheckEvery{0.002};
// A rate is taken of so many bytes or more: a few objects in a row, or one between pauses.
constexpr Bytes kMeasured{int64_t{4} << 20};
constexpr Bytes kMeasuredAlone{int64_t{256} << 10};
constexpr double kNewest = 0.25;  // The weight of the latest rate and latency.
// A node that hears a call's end has this many others of it at most.
constexpr size_t kMaxActive = kMaxStoreCalls / 2;

Error TooLate() { return {Code::kDeadlineExceeded, "the remote pool did not answer in time"}; }

std::optional<Error> ErrorOf(StoreStatus status) {
  const auto error = [status](Code code) { return Error{code, StoreStatusText(status)}; };
  switch (status) {
    case StoreStatus::kOk:
    case StoreStatus::kPresent:
      return std::nullopt;
    case StoreStatus::kMissing:
      return error(Code::kNotFound);
    case StoreStatus::kTooLarge:
      return error(Code::kOutOfRange);
    case StoreStatus::kNoRoom:
      return error(Code::kResourceExhausted);
    case StoreStatus::kBad:
      return error(Code::kDataLoss);
    case StoreStatus::kCancelled:
      return TooLate();
    case StoreStatus::kFailed:
      return error(Code::kUnavailable);
  }
  return error(Code::kInternal);
}

}  // namespace

StoreLink::StoreLink(const StoreLinkOptions& options, StoreTransport& transport,
                     const RegionDescriptor& region, uint64_t seed)
    : options_(options),
      transport_(transport),
      region_(region),
      random_(seed),
      backoff_(options.first_backoff) {
  rested_ = options.on_demand.has_value();
  health_.reason = "not connected yet";
}

// Before its first session, and during one; not while it waits to try again. On demand, whenever
// it may try.
bool StoreLink::Usable() const {
  if (state_ == State::kReady) return true;
  if (options_.on_demand) return state_ != State::kFencing && (state_ != State::kIdle || rested_);
  return state_ != State::kFencing && health_.failures == 0;
}

void StoreLink::Begin(StoreCall call) {
  (call.kind == StoreCall::Kind::kPut ? others_ : gets_).push_back(std::move(call));
}

// ---- The session

void StoreLink::Enter(State state, Seconds now) {
  state_ = state;
  due_ = now + options_.step;
}

void StoreLink::Dialed(Result<void> result, Seconds now) {
  if (state_ != State::kDialing) return;
  if (!result) return End(result.error().message, now);
  Enter(State::kGreeting, now);
  out_.emplace_back(StoreHello{
      .node = options_.self, .address = transport_->address(), .region = EncodeRegion(region_)});
}

void StoreLink::Receive(std::span<const std::byte> frame, Seconds now) {
  const auto messages = DecodeStoreFrame(frame);
  if (!messages) return End(messages.error().message, now);
  for (const StoreMessage& message : *messages) {
    if (state_ != State::kGreeting && state_ != State::kJoining && state_ != State::kReady) return;
    if (const auto handled = Handle(message, now); !handled) {
      return End(handled.error().message, now);
    }
  }
}

Result<void> StoreLink::Handle(const StoreMessage& message, Seconds now) {
  if (const auto* answer = std::get_if<StoreAnswer>(&message)) {
    Answer(*answer, now);
  } else if (const auto* have = std::get_if<StoreHave>(&message)) {
    const auto active = active_.find(have->call);
    if (active == active_.end()) return {};
    if (have->have.size() != active->second.call.keys.size()) {
      return Error{Code::kDataLoss, "it answers for other keys than it was asked about"};
    }
    Finish(active, {.have = have->have}, now);
  } else if (const auto* ping = std::get_if<StorePing>(&message)) {
    const auto sent = pings_.find(ping->number);
    if (sent == pings_.end()) return {};
    const double latency = (now - sent->second).value;
    const double before = health_.latency.value;
    health_.latency = Seconds(before > 0 ? before + kNewest * (latency - before) : latency);
    pings_.erase(pings_.begin(), std::next(sent));
  } else if (const auto* welcome = std::get_if<StoreWelcome>(&message)) {
    return Welcome(*welcome, now);
  } else if (const auto* reject = std::get_if<StoreReject>(&message)) {
    return Error{Code::kUnavailable, "it says: " + reject->reason};
  } else {
    return Error{Code::kDataLoss, "it sends what only clients send"};
  }
  return {};
}

Result<void> StoreLink::Welcome(const StoreWelcome& welcome, Seconds now) {
  if (state_ != State::kGreeting) return Error{Code::kDataLoss, "a second Welcome"};
  if (welcome.object_version != kStoreObjectVersion) {
    return Error{Code::kInvalidArgument,
                 Format("its objects are of version {}, this process's of version {}; run one "
                        "release of divisi everywhere",
                        welcome.object_version, kStoreObjectVersion)};
  }
  ASSIGN_OR_RETURN(const RegionDescriptor region, DecodeRegion(welcome.region));
  if (region.owner != welcome.node || welcome.node == options_.self) {
    return Error{Code::kDataLoss, "its region is not its own"};
  }
  node_ = welcome.node;
  address_ = welcome.address;
  largest_ = welcome.largest;
  Enter(State::kJoining, now);
  return transport_->Connect(region, welcome.address);
}

void StoreLink::HungUp(const std::string& why, Seconds now) { End(why, now); }

void StoreLink::End(const std::string& why, Seconds now) {
  if (state_ == State::kIdle || state_ == State::kFencing) return;
  health_.ready = false;
  health_.reason = why;
  ++health_.failures;
  outputs_.push_back({.kind = Output::Kind::kHangUp});
  out_.clear();
  pings_.clear();
  for (auto* queue : {&gets_, &others_}) {
    for (const StoreCall& call : *queue) {
      done_.push_back({.call = call.number, .error = Error{Code::kUnavailable, why}});
    }
    queue->clear();
  }
  state_ = State::kFencing;
  TryFence(now);
}

void StoreLink::TryFence(Seconds now) {
  if (node_ != NodeId() && !transport_.Fence(node_)) {
    due_ = now + kFenceAgain;
    return;
  }
  while (!active_.empty()) {
    Finish(active_.begin(), {.error = Error{Code::kUnavailable, health_.reason}}, now);
  }
  node_ = {};
  state_ = State::kIdle;
  due_ = now + backoff_ * (0.5 + 0.5 * random_.Uniform());
  backoff_ = std::min(options_.most_backoff, backoff_ * 2.0);
}

// ---- Calls

void StoreLink::Pump(Seconds now) {
  if (state_ != State::kReady) return;
  for (auto* queue : {&gets_, &others_}) {
    while (!queue->empty() && active_.size() < kMaxActive) {
      StoreCall& call = queue->front();
      const bool full = under_way_.value > 0 && under_way_ + call.size() > options_.most_under_way;
      if (full) return;
      if (call.kind == StoreCall::Kind::kGet && gets_under_way_++ == 0) {
        measured_at_ = now;
        measured_ = Bytes(0);
      }
      under_way_ += call.size();
      Send(call);
      const uint64_t number = call.number;
      active_.emplace(number, Active{std::move(call)});
      queue->pop_front();
    }
  }
}

void StoreLink::Send(const StoreCall& call) {
  switch (call.kind) {
    case StoreCall::Kind::kGet:
      out_.emplace_back(StoreGet{call.number, call.keys[0], call.offset, call.room, call.skip});
      break;
    case StoreCall::Kind::kPut:
      out_.emplace_back(StorePut{call.number, call.keys[0], call.size(), call.parent});
      break;
    case StoreCall::Kind::kHas:
      out_.emplace_back(StoreHas{call.number, call.keys});
      break;
    case StoreCall::Kind::kRemove:
      out_.emplace_back(StoreRemove{call.number, call.keys});
      break;
    case StoreCall::Kind::kClear:
      out_.emplace_back(StoreClear{call.number});
      break;
  }
}

void StoreLink::Answer(const StoreAnswer& answer, Seconds now) {
  const auto active = active_.find(answer.call);
  if (active == active_.end()) return;
  const Active& call = active->second;
  const bool good = answer.status == StoreStatus::kOk;
  if (good && call.call.kind == StoreCall::Kind::kPut && !call.placed) {
    if (call.late) return;  // The answer to that follows.
    const auto begun = Place(active, Bytes(static_cast<int64_t>(answer.value)));
    if (!begun) End(begun.error().message, now);
    return;
  }
  const auto value = static_cast<int64_t>(answer.value);
  if (call.call.kind == StoreCall::Kind::kGet && answer.status == StoreStatus::kFailed) {
    return End("what it sent did not arrive", now);  // And may still.
  }
  RemoteDone done{.error = ErrorOf(answer.status), .count = value};
  if (call.call.kind == StoreCall::Kind::kGet && good) {
    const Bytes room = call.call.room;
    const bool all = !call.call.skip;
    if (value <= 0 || (all ? Bytes(value) > room : Bytes(value) < *call.call.skip + room)) {
      return End("it says it sent other bytes than were asked for", now);
    }
    done.length = Bytes(value);
    measured_ += all ? done.length : room;
  }
  Finish(active, std::move(done), now);
}

Result<void> StoreLink::Place(Calls::iterator active, Bytes offset) {
  Active& put = active->second;
  put.placed = put.writing = true;
  return transport_->Write(
      {.to = node_, .local = put.call.object, .offset = offset, .token = put.call.number});
}

void StoreLink::Written(Calls::iterator active, const TransportEvent& event, Seconds now) {
  Active& put = active->second;
  put.writing = false;
  if (!event.ok) return End("a write to it failed: " + event.reason, now);
  if (put.late) {
    out_.emplace_back(StoreCancel{put.call.number});
  } else {
    out_.emplace_back(StoreCommit{put.call.number, put.call.sum});
  }
}

void StoreLink::Finish(Calls::iterator active, RemoteDone done, Seconds now) {
  done.call = active->first;
  done.ended = !active->second.late;
  under_way_ = under_way_ - active->second.call.size();
  const bool get = active->second.call.kind == StoreCall::Kind::kGet;
  active_.erase(active);
  if (get) {
    --gets_under_way_;
    Measure(now);
  }
  done_.push_back(std::move(done));
}

void StoreLink::Measure(Seconds now) {
  const double taken = (now - measured_at_).value;
  if (taken <= 0 || measured_ < (gets_under_way_ > 0 ? kMeasured : kMeasuredAlone)) return;
  const double rate = static_cast<double>(measured_.value) / taken;
  const double before = health_.rate.value;
  health_.rate = BytesPerSecond(before > 0 ? before + kNewest * (rate - before) : rate);
  measured_at_ = now;
  measured_ = Bytes(0);
}

// ---- Events and time

bool StoreLink::Handle(const TransportEvent& event, Seconds now) {
  if (event.kind == TransportEvent::Kind::kWritten) {
    const auto active = active_.find(event.token);
    if (active == active_.end() || !active->second.writing) return false;
    Written(active, event, now);
    return true;
  }
  if (node_ == NodeId() || event.peer != node_) return false;
  if (event.kind == TransportEvent::Kind::kLost) {
    End(Format("its memory at {} is out of reach ({}); the node's --data-listen and "
               "--data-advertise must name an address that this process reaches",
               address_, event.reason),
        now);
  } else if (state_ == State::kJoining) {
    state_ = State::kReady;
    used_at_ = now;
    backoff_ = options_.first_backoff;
    health_.ready = true;
    health_.reason.clear();
  }
  return true;
}

void StoreLink::Step(Seconds now) {
  switch (state_) {
    case State::kIdle:
      if (now < due_) break;
      rested_ = true;
      if (options_.on_demand && gets_.empty() && others_.empty()) break;
      rested_ = false;
      Enter(State::kDialing, now);
      outputs_.push_back({.kind = Output::Kind::kDial});
      break;
    case State::kFencing:
      if (now >= due_) TryFence(now);
      break;
    case State::kReady:
      break;
    default:
      if (now >= due_) End("no answer in time", now);
  }
  if (now >= check_at_) CheckTime(now);
  const bool talking =
      state_ == State::kGreeting || state_ == State::kJoining || state_ == State::kReady;
  if (talking && now >= ping_at_) {
    ping_at_ = now + options_.ping;
    pings_[++last_ping_] = now;
    if (pings_.size() > 16) pings_.erase(pings_.begin());
    out_.emplace_back(StorePing{last_ping_});
  }
  Pump(now);
  CheckIdle(now);
}

// A session that nobody needs ends without blame.
void StoreLink::CheckIdle(Seconds now) {
  if (!options_.on_demand || state_ != State::kReady) return;
  if (!active_.empty()) used_at_ = now;
  if (now < used_at_ + *options_.on_demand) return;
  End("nothing was asked of it for long", now);
  --health_.failures;
}

void StoreLink::CheckTime(Seconds now) {
  check_at_ = now + kCheckEvery;
  for (auto* queue : {&gets_, &others_}) {
    std::erase_if(*queue, [&](const StoreCall& call) {
      if (now < call.deadline) return false;
      done_.push_back({.call = call.number, .error = TooLate()});
      return true;
    });
  }
  const bool stuck = std::ranges::any_of(active_, [&](const auto& entry) {
    return now >= entry.second.call.deadline + options_.grace;
  });
  if (stuck) End("it no longer answers", now);
  for (auto& [number, active] : active_) CheckCall(active, now);
}

void StoreLink::CheckCall(Active& active, Seconds now) {
  if (now < active.call.deadline || active.late) return;
  active.late = true;
  done_.push_back({.call = active.call.number, .error = TooLate(), .released = false});
  // A put's bytes that are under way come first, then its end (Written).
  if (state_ == State::kReady && !active.writing) {
    out_.emplace_back(StoreCancel{active.call.number});
  }
}

std::vector<StoreLink::Output> StoreLink::TakeOutputs() {
  for (size_t at = 0; at < out_.size(); at += kMaxStoreMessages) {
    const size_t count = std::min(kMaxStoreMessages, out_.size() - at);
    const std::span<const StoreMessage> messages(out_);
    outputs_.push_back({.frame = EncodeStoreFrame(messages.subspan(at, count))});
  }
  out_.clear();
  return std::exchange(outputs_, {});
}

std::vector<RemoteDone> StoreLink::TakeDone() { return std::exchange(done_, {}); }

RemoteHealth StoreLink::health() const {
  RemoteHealth health = health_;
  health.under_way = under_way_;
  return health;
}

}  // namespace divisi
