#include "divisi/kv/remote_store.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "divisi/core/check.h"
#include "divisi/core/format.h"
#include "divisi/kv/landing.h"
#include "divisi/kv/remote_reader.h"
#include "divisi/kv/remote_store_state.h"

namespace divisi {
namespace {

constexpr int64_t kStaging = int64_t{64} << 20;
constexpr int64_t kFewest = 2, kMost = 64;
constexpr int64_t kAlignment = 4096;
constexpr Seconds kNoLimit{1e9};
// How often who waits sees whether it is given up: in less than TierIo takes it for one that hangs.
constexpr Seconds kLook{0.01};
constexpr Seconds kRemove{5};
// Kept until somebody takes them: more than come between two looks.
constexpr size_t kMostLostCopies = 4096;

int64_t RoundUp(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t ObjectBytes(const PageShape& shape) {
  return static_cast<int64_t>(kPageHeadBytes) + shape.PayloadBytes();
}

int LayersOf(const RemoteStoreOptions& options) {
  const int64_t most = options.run.value / options.shape.layer_bytes;
  return static_cast<int>(std::clamp<int64_t>(most, 1, options.shape.layers));
}

}  // namespace

void RemotePageStore::State::GetEnded(size_t index, const RemoteDone& done, Seconds now) {
  const std::lock_guard lock(mutex);
  Buffer& buffer = buffers[index];
  buffer.released = done.released;
  if (done.ended) {
    CountLocked(done, buffer, now);
    const bool lost = done.copy_lost && buffer.part.skip.value == 0;
    if (lost && lost_copies.size() < kMostLostCopies) lost_copies.push_back(buffer.key);
    buffer.under_way = false;
    buffer.error = done.error;
    buffer.length = done.length;
    buffer.there = !done.error && (buffer.claimed || buffer.wanted);
    stats.unwanted += !done.error && !buffer.there;
  }
  // Who hinted it looks when it is wanted.
  if (buffer.claimed || waiting_for_buffer > 0) changed.notify_all();
}

void RemotePageStore::State::CountLocked(const RemoteDone& done, const Buffer& buffer,
                                         Seconds now) {
  if (!done.error) {
    ++stats.hits;
    stats.got += std::min(done.length, buffer.part.length);
    targets.GetEnded(buffer.target);
  } else if (done.error->code == Code::kNotFound) {
    ++stats.misses;
    targets.GetEnded(buffer.target);
  } else if (done.error->code == Code::kDeadlineExceeded) {
    ++stats.late;
    targets.GetLate(buffer.target, now);
  } else {
    ++stats.failed;
  }
}

std::optional<size_t> RemotePageStore::State::HintedLocked(const BlockKey& key, const Part& part,
                                                           uint64_t target) const {
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Buffer& buffer = buffers[i];
    const bool free_to_take = !buffer.claimed && buffer.wanted && buffer.target == target;
    if (free_to_take && buffer.part == part && buffer.key == key) return i;
  }
  return std::nullopt;
}

// Half of them: one that hangs keeps its buffers until nothing of it lands any more.
bool RemotePageStore::State::HasShareLocked(uint64_t target) const {
  const auto its = std::ranges::count_if(buffers, [target](const Buffer& buffer) {
    return !buffer.Free() && buffer.target == target;
  });
  return static_cast<size_t>(its) < std::max<size_t>(buffers.size() / 2, 1);
}

std::optional<size_t> RemotePageStore::State::FreeLocked() const {
  const auto free = std::ranges::find_if(buffers, &Buffer::Free);
  if (free == buffers.end()) return std::nullopt;
  return static_cast<size_t>(free - buffers.begin());
}

// Of what came ahead and was not opened, what was begun first. False: there is none.
bool RemotePageStore::State::DropOldestLocked() {
  Buffer* oldest = nullptr;
  for (Buffer& buffer : buffers) {
    if (buffer.claimed || !buffer.there) continue;
    if (oldest == nullptr || buffer.begun < oldest->begun) oldest = &buffer;
  }
  if (oldest == nullptr) return false;
  oldest->there = oldest->wanted = false;
  ++stats.unwanted;
  return true;
}

Result<void> RemotePageStore::State::WaitLocked(std::unique_lock<std::mutex>& lock,
                                                const Wait& wait, Seconds now) {
  if (wait.landing != nullptr && wait.landing->given_up()) {
    return Error{Code::kCancelled, "the load was given up"};
  }
  if (now >= wait.until) return Error{Code::kDeadlineExceeded, "it did not give the page in time"};
  const Seconds time = std::min(wait.until - now, kLook);
  changed.wait_for(lock, std::chrono::duration<double>(time.value));
  return {};
}

Bytes RemotePageStore::MemoryFor(const PageShape& shape) {
  const int64_t bytes = RoundUp(ObjectBytes(shape));
  return Bytes(std::clamp(kStaging / bytes, kFewest, kMost) * bytes);
}

RemotePageStore::RemotePageStore(std::shared_ptr<RemoteHub> hub, const RemoteStoreOptions& options)
    : hub_(std::move(hub)),
      options_(options),
      run_(LayersOf(options)),
      buffer_bytes_(static_cast<size_t>(RoundUp(ObjectBytes(options.shape)))),
      state_(std::make_shared<State>(options)) {
  CHECK(CheckEncodable({.shape = options.shape}).ok(), "a shape that no page has");
  state_->buffers.resize(hub_->memory().size() / buffer_bytes_);
  CHECK(!state_->buffers.empty(), "no room for {} bytes of an object", buffer_bytes_);
}

RemotePageStore::~RemotePageStore() {
  const std::lock_guard lock(state_->mutex);
  for (const State::Buffer& buffer : state_->buffers) {
    CHECK(!buffer.claimed, "a reader outlives its store");
  }
}

std::span<std::byte> RemotePageStore::At(size_t buffer) const {
  return hub_->memory().subspan(buffer * buffer_bytes_, buffer_bytes_);
}

RemotePageStore::Part RemotePageStore::Opening(PageUse use) const {
  const bool head = use == PageUse::kLayers && hub_->gets_parts();
  return {Bytes(0),
          Bytes(head ? static_cast<int64_t>(kPageHeadBytes) : ObjectBytes(options_.shape))};
}

RemotePageStore::Part RemotePageStore::Layers(int first, int count) const {
  const int64_t layer = options_.shape.layer_bytes;
  return {Bytes(static_cast<int64_t>(kPageHeadBytes) + first * layer), Bytes(count * layer)};
}

// Of a wait that begins now.
RemotePageStore::Wait RemotePageStore::Until(Seconds end, const Landing* landing) const {
  return {std::min(end, hub_->clock().Now() + options_.get + kRemoteSlack), landing};
}

// ---- Reading

// Requires the lock, and a free buffer that says of what.
void RemotePageStore::BeginGet(size_t index) {
  State::Buffer& buffer = state_->buffers[index];
  const BlockKey key = buffer.key;
  const Part part = buffer.part;
  buffer.under_way = true;
  buffer.released = false;
  buffer.begun = ++state_->gets_begun;
  ++state_->stats.gets;
  // Of a whole object its own length, so that one that is too long is not taken for a good one.
  const auto to = At(index).first(static_cast<size_t>(part.length.value));
  auto ended = [state = state_, index, clock = &hub_->clock()](const RemoteDone& done) {
    state->GetEnded(index, done, clock->Now());
  };
  if (part != Opening(PageUse::kWhole)) {
    return hub_->GetPart(key, part.skip, to, options_.get, std::move(ended));
  }
  hub_->Get(key, to, options_.get, std::move(ended));
}

bool RemotePageStore::WillOpen(const BlockKey& key, PageUse use) { return Hint(key, Opening(use)); }
void RemotePageStore::WontOpen(const BlockKey& key) {
  for (const PageUse use : {PageUse::kWhole, PageUse::kLayers}) Forget(key, Opening(use));
}

bool RemotePageStore::Hint(const BlockKey& key, const Part& part) {
  const auto one = hub_->TargetOf(key);
  const uint64_t target = one.value_or(0);
  const std::lock_guard lock(state_->mutex);
  State& s = *state_;
  const bool paused = s.targets.GetsPause(target, hub_->clock().Now());
  if (paused || s.bad.Holds(PageAt(key, target), Tier::kRemote)) return true;
  if (s.HintedLocked(key, part, target)) return true;
  const auto free = s.FreeLocked();
  if (!free || (one && !s.HasShareLocked(target))) return false;
  s.buffers[*free] = {.key = key, .target = target, .part = part};
  BeginGet(*free);
  s.buffers[*free].wanted = true;
  return true;
}

void RemotePageStore::Forget(const BlockKey& key, const Part& part) {
  const std::lock_guard lock(state_->mutex);
  for (State::Buffer& buffer : state_->buffers) {  // Of whomever it was asked.
    const bool hinted = !buffer.claimed && buffer.wanted;
    if (!hinted || buffer.part != part || buffer.key != key) continue;
    state_->stats.unwanted += buffer.there;
    buffer.wanted = buffer.there = false;
    state_->changed.notify_all();
  }
}

// A buffer with the part, or on its way there; it is the caller's then.
Result<size_t> RemotePageStore::Claim(const BlockKey& key, const Part& part, const Wait& wait) {
  const uint64_t target = hub_->TargetOf(key).value_or(0);
  std::unique_lock lock(state_->mutex);
  State& s = *state_;
  const Clock& clock = hub_->clock();
  if (s.bad.Holds(PageAt(key, target), Tier::kRemote)) {
    return Error{Code::kNotFound, Format("remote pool: page {} failed a check before", key.Hex())};
  }
  auto index = s.HintedLocked(key, part, target);
  while (!index) {
    const Seconds now = clock.Now();
    if (s.targets.GetsPause(target, now)) {
      ++s.stats.skipped;
      return Error{Code::kUnavailable, "the remote pool was late just now"};
    }
    index = s.FreeLocked();
    if (index) {
      s.buffers[*index] = {.key = key, .target = target, .part = part};
      BeginGet(*index);
    } else if (!s.DropOldestLocked()) {
      ++s.waiting_for_buffer;
      const auto waited = s.WaitLocked(lock, wait, now);
      --s.waiting_for_buffer;
      if (waited) continue;
      if (waited.error().code == Code::kCancelled) return waited.error();
      ++s.stats.skipped;
      return Error{Code::kResourceExhausted, "all buffers of the remote pool are in use"};
    }
  }
  s.buffers[*index].claimed = true;
  return *index;
}

Result<std::unique_ptr<PageReader>> RemotePageStore::Open(const BlockKey& key) {
  return OpenWithin(key, {.within = kNoLimit});
}

Result<std::unique_ptr<PageReader>> RemotePageStore::OpenWithin(const BlockKey& key,
                                                                const PageOpening& opening) {
  const Seconds end = hub_->clock().Now() + opening.within;
  const Wait wait = Until(end, opening.landing);
  const Part part = Opening(opening.use);
  ASSIGN_OR_RETURN(const size_t index, Claim(key, part, wait));
  auto head = [&]() -> Result<PageHead> {
    ASSIGN_OR_RETURN(const Bytes length, WaitFor(index, wait));
    const auto there = std::min(length, part.length);
    return Check(key, At(index).first(static_cast<size_t>(there.value)), length);
  }();
  if (head && part == Opening(PageUse::kWhole)) {
    return std::unique_ptr<PageReader>(new WholeReader(*this, index, std::move(*head)));
  }
  if (!head) {
    const Error error = Failed(index, head.error());
    EndReading(index);
    return error;
  }
  EndReading(index);
  const Wait rest{end, opening.landing};
  return std::unique_ptr<PageReader>(new PartReader(*this, std::move(*head), rest));
}

Error RemotePageStore::Failed(size_t index, const Error& error) {
  if (error.code == Code::kDataLoss || error.code == Code::kOutOfRange) return Fail(index, error);
  if (error.code == Code::kNotFound || error.code == Code::kCancelled) return error;
  return {Code::kUnavailable, Format("remote pool: {}", error.message)};
}

// The object's length once it is there.
Result<Bytes> RemotePageStore::WaitFor(size_t index, const Wait& wait) {
  std::unique_lock lock(state_->mutex);
  const State::Buffer& buffer = state_->buffers[index];
  while (buffer.under_way) {
    RETURN_IF_ERROR(state_->WaitLocked(lock, wait, hub_->clock().Now()));
  }
  if (buffer.error) return *buffer.error;
  return buffer.length;
}

// object: from its begin on. length: of all of it.
Result<PageHead> RemotePageStore::Check(const BlockKey& key, std::span<const std::byte> object,
                                        Bytes length) const {
  auto head = ReadPageHead(object);
  if (!head) return Error{Code::kDataLoss, head.error().message};
  if (length.value != ObjectBytes(options_.shape)) {
    return Error{Code::kDataLoss, Format("{} bytes are not one page", length.value)};
  }
  PageHeader asked = head->header;  // Where it stands in its chain is its reader's to check.
  asked.key = key;
  asked.shape = options_.shape;
  asked.model = options_.model;
  RETURN_IF_ERROR(CheckIsAsked(head->header, asked));
  return head;
}

// Layers from `first` on. Errors: kDataLoss; the page is taken out of the pool then.
Result<void> RemotePageStore::Copy(const PageHead& head, int first, size_t index,
                                   std::span<std::byte> to) {
  const auto layer = static_cast<size_t>(head.header.shape.layer_bytes);
  const Bytes skip =
      Layers(first, 1).skip - state_->buffers[index].part.skip;  // Claimed: it stays.
  auto from = At(index).subspan(static_cast<size_t>(skip.value));
  for (int i = first; !to.empty(); ++i, to = to.subspan(layer), from = from.subspan(layer)) {
    if (CopyWithSum(to.first(layer), from.first(layer)) == head.sums[static_cast<size_t>(i)]) {
      continue;
    }
    return Fail(index, {Code::kDataLoss, Format("layer {} is not what was put", i)});
  }
  return {};
}

// Takes a page that failed its check out of the pool.
Error RemotePageStore::Fail(size_t index, const Error& error) {
  const BlockKey key = state_->buffers[index].key;
  {
    const std::lock_guard lock(state_->mutex);
    state_->bad.Failed(PageAt(key, state_->buffers[index].target), Tier::kRemote);
    ++state_->stats.bad;
  }
  hub_->Remove({key}, kRemove);
  return {Code::kDataLoss, Format("remote pool: page {}: {}", key.Hex(), error.message)};
}

void RemotePageStore::EndReading(size_t index) {
  const std::lock_guard lock(state_->mutex);
  State::Buffer& buffer = state_->buffers[index];
  buffer.claimed = buffer.wanted = buffer.there = false;
  state_->changed.notify_all();
}

void RemotePageStore::Remove(const BlockKey& key) { hub_->Remove({key}, kRemove); }

std::vector<BlockKey> RemotePageStore::TakeLostCopies() {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->lost_copies, {});
}

RemoteStoreStats RemotePageStore::stats() const {
  RemoteStoreStats stats;
  {
    const std::lock_guard lock(state_->mutex);
    stats = state_->stats;
    stats.buffers = static_cast<int64_t>(state_->buffers.size());
    stats.buffers_used = std::ranges::count_if(
        state_->buffers, [](const State::Buffer& buffer) { return !buffer.Free(); });
  }
  stats.health = hub_->health();
  return stats;
}

}  // namespace divisi
