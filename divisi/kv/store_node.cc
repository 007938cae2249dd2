#include "divisi/kv/store_node.h"

#include <algorithm>
#include <utility>

#include "divisi/core/format.h"
#include "divisi/kv/page_object.h"

namespace divisi {
namespace {

// Overdue commits are looked for this often.
constexpr Seconds kCheckEvery{0.05};
// Answers of gets are held up to so many bytes, what a network of 80 Gbit/s brings in 0.4 ms, and
// no longer than that.
constexpr Bytes kHeld{int64_t{4} << 20};
constexpr Seconds kHold{0.4e-3};
// Until a client that is told why its session ends has heard it: it would take the end of its data
// connection, which comes another way, for the reason.
constexpr Seconds kLastWord{0.05};
// Objects that one step takes from the source, so that the first of them leaves before the last is
// copied.
constexpr int kMostFetches = 4;

StoreMessage Answer(uint64_t call, StoreStatus status, uint64_t value = 0) {
  return StoreAnswer{call, status, value};
}

bool Changes(const StoreMessage& message) {
  return std::holds_alternative<StorePut>(message) ||
         std::holds_alternative<StoreCommit>(message) ||
         std::holds_alternative<StoreRemove>(message) ||
         std::holds_alternative<StoreClear>(message);
}

Error ReadOnly() {
  return {Code::kInvalidArgument,
          "this is the host memory of a worker, which others only read; --kv-pool takes nodes of "
          "`divisi store`"};
}

Error Breach(const std::string& what) {
  return {Code::kInvalidArgument, "it breaks the store's protocol: " + what};
}

// `sum`: what the client says that its head is.
std::optional<PageHeader> ObjectOf(const BlockKey& key, std::span<const std::byte> object,
                                   uint64_t sum) {
  const auto head = CheckPageObject(object);
  const bool good =
      head && head->header.key == key && PageHeadSum(object.first(kPageHeadBytes)) == sum;
  return good ? std::optional(head->header) : std::nullopt;
}

}  // namespace

StoreNode::StoreNode(const StoreNodeOptions& options, Transport& transport,
                     std::span<std::byte> memory, const RegionDescriptor& region)
    : options_(options),
      transport_(transport),
      memory_(memory),
      region_(region),
      space_(Bytes(static_cast<int64_t>(memory.size())), options.report_objects) {}

// ---- Frames

void StoreNode::Receive(Session session, std::span<const std::byte> frame, Seconds now) {
  auto client = clients_.try_emplace(session).first;
  const auto messages = DecodeStoreFrame(frame);
  Result<void> handled;
  if (!messages) handled = messages.error();
  for (size_t i = 0; handled && i < messages->size(); ++i) {
    handled = Handle(client, (*messages)[i], now);
    // A Hello whose memory is out of reach has ended it.
    client = clients_.find(session);
    if (client == clients_.end()) return;
  }
  if (handled) return Serve(client);
  ++counters_.breaches;
  End(client, handled.error(), now);
}

Result<void> StoreNode::Handle(Clients::iterator client, const StoreMessage& message, Seconds now) {
  Client& c = client->second;
  if (const auto* ping = std::get_if<StorePing>(&message)) {
    c.out.emplace_back(*ping);
    return {};
  }
  if (std::holds_alternative<StoreQuery>(message)) {
    c.out.emplace_back(counters());
    return {};
  }
  if (const auto* hello = std::get_if<StoreHello>(&message)) return Greet(client, *hello, now);
  if (c.state != State::kReady) return Breach("a call before Welcome");
  return HandleCall(client, message, now);
}

Result<void> StoreNode::Greet(Clients::iterator client, const StoreHello& hello, Seconds now) {
  Client& c = client->second;
  if (c.state != State::kNew) return Breach("a second Hello");
  if (hello.object_version != kStoreObjectVersion) {
    return Error{Code::kInvalidArgument,
                 Format("its objects are of version {}, this node's of version {}; run one release "
                        "of divisi everywhere",
                        hello.object_version, kStoreObjectVersion)};
  }
  const auto region = DecodeRegion(hello.region);
  if (!region) return region.error();
  if (region->owner != hello.node || hello.node == options_.self) {
    return Breach("a region that is not the client's");
  }
  if (const auto earlier = ClientOf(hello.node); earlier != clients_.end()) {
    End(earlier, {Code::kCancelled, "the same client began another session"}, now);
  }
  c.node = hello.node;
  c.region = *region;
  c.address = hello.address;
  c.state = State::kFencing;
  // Also where nothing is known of it: a connection of before may stand.
  unfenced_.try_emplace(c.node);
  TryFence(c.node, now);
  return {};
}

Result<void> StoreNode::Join(Client& client) {
  client.state = State::kConnecting;
  return transport_->Connect(client.region, client.address);
}

Result<void> StoreNode::HandleCall(Clients::iterator client, const StoreMessage& message,
                                   Seconds now) {
  Client& c = client->second;
  if (options_.source != nullptr && Changes(message)) return ReadOnly();
  if (const auto* get = std::get_if<StoreGet>(&message)) {
    if (c.waiting.size() + static_cast<size_t>(c.reads) >= kMaxStoreCalls) {
      return Breach("too many gets at once");
    }
    c.waiting.push_back(*get);
  } else if (const auto* put = std::get_if<StorePut>(&message)) {
    if (c.writing.size() >= kMaxStoreCalls) return Breach("too many puts at once");
    if (c.writing.contains(put->call)) return Breach("two puts of one number");
    Place(c, *put, now);
  } else if (const auto* commit = std::get_if<StoreCommit>(&message)) {
    Commit(c, *commit);
  } else if (const auto* cancel = std::get_if<StoreCancel>(&message)) {
    Cancel(c, *cancel);
  } else if (const auto* has = std::get_if<StoreHas>(&message)) {
    StoreHave have{has->call, {}};
    for (const BlockKey& key : has->keys) {
      const bool there = options_.source != nullptr && options_.source->Has(key);
      have.have.push_back(there || space_.Has(key));
    }
    c.out.emplace_back(std::move(have));
  } else if (const auto* remove = std::get_if<StoreRemove>(&message)) {
    uint64_t removed = 0;
    for (const BlockKey& key : remove->keys) removed += space_.Remove(key);
    counters_.removals += static_cast<int64_t>(removed);
    c.out.push_back(Answer(remove->call, StoreStatus::kOk, removed));
  } else if (const auto* clear = std::get_if<StoreClear>(&message)) {
    const int64_t removed = space_.Clear();
    counters_.removals += removed;
    c.out.push_back(Answer(clear->call, StoreStatus::kOk, static_cast<uint64_t>(removed)));
  } else {
    return Breach("a node's message from a client");
  }
  return {};
}

// ---- Puts

void StoreNode::Place(Client& client, const StorePut& put, Seconds now) {
  // Half of the memory at most is one client's unpublished.
  const bool greedy =
      client.placed.value > 0 && client.placed + put.length > Bytes(space_.size().value / 2);
  space_.Touch(put.parent);
  const auto placing = greedy ? StoreSpace::Placing{} : space_.Place(put.key, put.length);
  if (placing.status == StoreStatus::kOk) {
    client.placed += put.length;
    client.writing[put.call] = {placing.object, put.key, now + options_.put_patience};
  }
  counters_.refused_puts += placing.status == StoreStatus::kNoRoom;
  client.out.push_back(
      Answer(put.call, placing.status, static_cast<uint64_t>(placing.object.offset.value)));
}

void StoreNode::Commit(Client& client, const StoreCommit& commit) {
  const auto writing = client.writing.find(commit.call);
  if (writing == client.writing.end()) return;  // Cancelled, and answered so.
  const auto& [object, key, commit_by] = writing->second;
  const auto bytes = memory_.subspan(static_cast<size_t>(object.offset.value),
                                     static_cast<size_t>(object.length.value));
  const auto good = ObjectOf(key, bytes, commit.sum);
  if (good) {
    space_.Publish(object.slot, good->parent);
    ++counters_.puts;
    counters_.put_bytes += object.length.value;
  } else {
    space_.Abandon(object.slot);
    ++counters_.bad_puts;
  }
  client.placed = client.placed - object.length;
  client.out.push_back(Answer(commit.call, good ? StoreStatus::kOk : StoreStatus::kBad));
  client.writing.erase(writing);
}

void StoreNode::Cancel(Client& client, const StoreCancel& cancel) {
  const auto answer = [&] { client.out.push_back(Answer(cancel.call, StoreStatus::kCancelled)); };
  if (const auto writing = client.writing.find(cancel.call); writing != client.writing.end()) {
    client.placed = client.placed - writing->second.object.length;
    space_.Abandon(writing->second.object.slot);
    client.writing.erase(writing);
    return answer();
  }
  // What is under way is answered when it ends.
  const auto erased =
      std::erase_if(client.waiting, [&](const StoreGet& get) { return get.call == cancel.call; });
  if (erased > 0) answer();
}

// ---- Gets

// Where there is a source, room is short and clients take turns (ServeAll).
void StoreNode::Serve(Clients::iterator client) {
  if (options_.source != nullptr) return;
  while (ServeOne(client) == Served::kOne) {
  }
}

StoreNode::Served StoreNode::ServeOne(Clients::iterator client) {
  Client& c = client->second;
  if (c.state != State::kReady || c.waiting.empty()) return Served::kNone;
  if (c.reads > 0 && c.reading + c.waiting.front().room > kMaxStoreReading) return Served::kNone;
  if (options_.source != nullptr && !Fetch(c.waiting.front().key)) return Served::kNoRoom;
  const StoreGet get = c.waiting.front();
  c.waiting.pop_front();
  return Send(client, get) ? Served::kOne : Served::kNone;
}

// One object for each client in turn, from the one after the last that had its turn on; who found
// no room is the first when there is some. Whether any was served.
bool StoreNode::ServeAll() {
  fetches_ = 0;
  std::optional<Session> without_room;
  bool any = false;
  for (bool more = true; more;) {
    more = false;
    auto client = clients_.lower_bound(next_turn_);
    for (size_t turn = clients_.size(); turn > 0; --turn, ++client) {
      if (client == clients_.end()) client = clients_.begin();
      const Served served = ServeOne(client);
      if (served == Served::kOne) next_turn_ = client->first + 1;
      if (served == Served::kNoRoom && !without_room) without_room = client->first;
      more = more || served == Served::kOne;
    }
    any = any || more;
  }
  if (without_room) next_turn_ = *without_room;
  return any;
}

// Brings the object into the memory, where the source has it. False: later.
bool StoreNode::Fetch(const BlockKey& key) {
  StoreSource& source = *options_.source;
  if (space_.Has(key) || !source.Has(key)) return true;
  if (fetches_ >= kMostFetches) return false;
  const auto placing = space_.Place(key, source.object_size());
  if (placing.status == StoreStatus::kNoRoom) return false;
  if (placing.status != StoreStatus::kOk) return true;
  ++fetches_;
  const auto to = memory_.subspan(static_cast<size_t>(placing.object.offset.value),
                                  static_cast<size_t>(placing.object.length.value));
  if (source.Read(key, to)) {
    space_.Publish(placing.object.slot);
  } else {
    space_.Abandon(placing.object.slot);
  }
  return true;
}

// False where the connection can't take it: its loss ends the session.
bool StoreNode::Send(Clients::iterator client, const StoreGet& get) {
  Client& c = client->second;
  const auto object = space_.Read(get.key);
  if (!object) {
    ++counters_.misses;
    c.out.push_back(Answer(get.call, StoreStatus::kMissing));
    return true;
  }
  const Bytes skip = get.skip.value_or(Bytes(0));
  const Bytes length = get.skip ? get.room : object->length;
  const bool is_there = get.skip ? InRegion(object->length, skip, length) : length <= get.room;
  const bool fits = is_there && InRegion(c.region.size, get.offset, length);
  const uint64_t token = ++last_token_;
  const bool begun =
      fits &&
      transport_
          ->Write({.to = c.node,
                   .local = memory_.subspan(static_cast<size_t>((object->offset + skip).value),
                                            static_cast<size_t>(length.value)),
                   .offset = get.offset,
                   .token = token})
          .ok();
  if (!begun) {
    space_.Unpin(object->slot);
    const auto status = fits ? StoreStatus::kFailed : StoreStatus::kTooLarge;
    counters_.failed_gets += fits;
    c.out.push_back(Answer(get.call, status, static_cast<uint64_t>(object->length.value)));
    return !fits;
  }
  c.reading += length;
  ++c.reads;
  reading_.emplace(token, Reading{.session = client->first,
                                  .call = get.call,
                                  .object = *object,
                                  .length = length,
                                  .begins = skip.value == 0});
  return true;
}

void StoreNode::Sent(const TransportEvent& event, Seconds now) {
  const auto found = reading_.find(event.token);
  if (found == reading_.end()) return;
  const Reading reading = found->second;
  reading_.erase(found);
  space_.Unpin(reading.object.slot);
  if (event.ok) {
    counters_.hits += reading.begins;
    counters_.got_bytes += reading.length.value;
  } else {
    ++counters_.failed_gets;
  }
  const auto client = clients_.find(reading.session);
  if (client == clients_.end()) return;
  Client& c = client->second;
  c.reading = c.reading - reading.length;
  --c.reads;
  if (event.ok) {
    if (c.held_answers++ == 0) c.held_since = now;
    c.held += reading.length;
  }
  c.out.push_back(Answer(reading.call, event.ok ? StoreStatus::kOk : StoreStatus::kFailed,
                         static_cast<uint64_t>(reading.object.length.value)));
  Serve(client);
}

// ---- Lives

void StoreNode::Handle(const TransportEvent& event, Seconds now) {
  if (event.kind == TransportEvent::Kind::kWritten) return Sent(event, now);
  const auto client = ClientOf(event.peer);
  if (client == clients_.end()) return;
  Client& c = client->second;
  if (event.kind == TransportEvent::Kind::kLost) {
    // Of the session before this one, whose way back is not open yet.
    if (c.state == State::kFencing) return;
    return End(client,
               {Code::kUnavailable,
                Format("its memory at {} is out of reach ({}); the client's data address must be "
                       "one that this node reaches",
                       c.address, event.reason)},
               now);
  }
  if (c.state != State::kConnecting) return;
  c.state = State::kReady;
  c.welcome = true;
  c.out.emplace_back(StoreWelcome{.node = options_.self,
                                  .address = transport_->address(),
                                  .region = EncodeRegion(region_),
                                  .largest = space_.size()});
}

bool StoreNode::Step(Seconds now) {
  const auto first = transport_.Next();
  if (first) Handle(*first, now);
  while (transport_.pending()) Handle(*transport_.Next(), now);
  if (now >= check_at_) CheckTime(now);
  FenceAgain(now);
  const bool served = options_.source != nullptr && ServeAll();
  return first.has_value() || served;
}

void StoreNode::CheckTime(Seconds now) {
  check_at_ = now + kCheckEvery;
  std::vector<Session> overdue;
  for (const auto& [session, client] : clients_) {
    const bool late = std::ranges::any_of(
        client.writing, [now](const auto& entry) { return entry.second.commit_by < now; });
    if (late) overdue.push_back(session);
  }
  for (const Session session : overdue) {
    End(clients_.find(session), {Code::kDeadlineExceeded, "a put was not committed in time"}, now);
  }
}

void StoreNode::FenceAgain(Seconds now) {
  std::vector<NodeId> due;
  for (const auto& [node, orphans] : unfenced_) {
    if (orphans.try_at <= now) due.push_back(node);
  }
  for (const NodeId node : due) TryFence(node, now);
}

void StoreNode::End(Clients::iterator client, const Error& error, Seconds now) {
  client->second.out.emplace_back(StoreReject{error.message});
  outputs_.push_back({.session = client->first,
                      .frame = EncodeStoreFrame(client->second.out),
                      .close = true,
                      .why = error.message});
  Forget(client, now, now + kLastWord);
}

void StoreNode::Ended(Session session, Seconds now) {
  const auto client = clients_.find(session);
  if (client != clients_.end()) Forget(client, now, now);
}

void StoreNode::Forget(Clients::iterator client, Seconds now, Seconds fence_at) {
  const NodeId node = client->second.node;
  const bool met = client->second.state != State::kNew;
  if (met) {
    Orphans& orphans = unfenced_[node];
    orphans.try_at = fence_at;
    for (const auto& [call, writing] : client->second.writing) {
      orphans.slots.push_back(writing.object.slot);
      ++counters_.lost_puts;
    }
  }
  clients_.erase(client);
  if (met && now >= fence_at) TryFence(node, now);
}

// Its session, if it waits for this, goes on.
bool StoreNode::TryFence(NodeId node, Seconds now) {
  const auto orphans = unfenced_.find(node);
  if (orphans == unfenced_.end()) return true;
  if (!transport_.Fence(node)) {
    orphans->second.try_at = now + kFenceAgain;
    return false;
  }
  for (const StoreSpace::Slot slot : orphans->second.slots) space_.Abandon(slot);
  unfenced_.erase(orphans);
  const auto client = ClientOf(node);
  if (client == clients_.end() || client->second.state != State::kFencing) return true;
  if (const auto joined = Join(client->second); !joined) End(client, joined.error(), now);
  return true;
}

StoreNode::Clients::iterator StoreNode::ClientOf(NodeId node) {
  return std::ranges::find_if(clients_, [node](const auto& entry) {
    return entry.second.state != State::kNew && entry.second.node == node;
  });
}

std::vector<StoreNode::Output> StoreNode::TakeOutputs(Seconds now) {
  holds_ = false;
  for (auto& [session, client] : clients_) {
    const bool hold = client.reads > 0 && !client.out.empty() &&
                      client.out.size() == client.held_answers && client.held < kHeld &&
                      now < client.held_since + kHold;
    holds_ = holds_ || hold;
    if (hold) continue;
    client.held_answers = 0;
    client.held = Bytes(0);
    for (size_t at = 0; at < client.out.size(); at += kMaxStoreMessages) {
      const size_t count = std::min(kMaxStoreMessages, client.out.size() - at);
      outputs_.push_back(
          {.session = session,
           .frame = EncodeStoreFrame(std::span<const StoreMessage>(client.out).subspan(at, count)),
           .welcome = std::exchange(client.welcome, false)});
    }
    client.out.clear();
  }
  return std::exchange(outputs_, {});
}

StoreCounters StoreNode::counters() const {
  StoreCounters counters = counters_;
  counters.memory_bytes = space_.size().value;
  counters.used_bytes = space_.used().value;
  counters.objects = space_.objects();
  counters.sessions = std::ranges::count_if(
      clients_, [](const auto& entry) { return entry.second.state == State::kReady; });
  counters.reading = static_cast<int64_t>(reading_.size());
  counters.writing = space_.placed();
  counters.evictions = space_.evictions();
  return counters;
}

}  // namespace divisi
