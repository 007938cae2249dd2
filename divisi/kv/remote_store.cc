#include "divisi/kv/remote_store.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "divisi/core/check.h"
#include "divisi/core/format.h"
#include "divisi/kv/page_quarantine.h"

namespace divisi {
namespace {

constexpr int64_t kStaging = int64_t{64} << 20;
constexpr int64_t kFewest = 2, kMost = 64;
constexpr int64_t kAlignment = 4096;
// The pool ends each call in its time; a wait is this much longer, for busy machines.
constexpr Seconds kSlack{1};
constexpr Seconds kRemove{5};

int64_t BufferBytes(const PageShape& shape) {
  const auto object = static_cast<int64_t>(kPageHeadBytes) + shape.PayloadBytes();
  return (object + kAlignment - 1) / kAlignment * kAlignment;
}

// What was late is left alone, longer each time.
class Pause {
 public:
  Pause(Seconds first, Seconds most) : first_(first), most_(most) {}
  bool Holds(Seconds now) const { return now < until_; }
  void Failed(Seconds now) {
    if (Holds(now)) return;  // Of the same time.
    length_ = std::clamp(length_ * 2, first_, most_);
    until_ = now + length_;
  }
  void Ended() { length_ = Seconds(0); }

 private:
  Seconds first_, most_, length_, until_;
};

}  // namespace

struct RemotePageStore::State {
  // free --BeginGet--> under way --ended--> there --claimed and read, or not wanted--> free, once
  // nothing lands any more.
  struct Buffer {
    BlockKey key;
    bool under_way = false;  // The get has not ended.
    bool released = true;    // Nothing lands any more.
    bool there = false;      // It ended well, and is of use.
    bool claimed = false;    // By who opens it or reads it.
    bool wanted = false;     // A hint: somebody will claim it.
    uint64_t begun = 0;
    Bytes length;
    std::optional<Error> error;

    bool Free() const { return !under_way && released && !claimed && !there; }
  };

  explicit State(const RemoteStoreOptions& options)
      : get_pause(options.first_pause, options.most_pause),
        put_pause(options.first_pause, options.most_pause),
        bad(static_cast<int64_t>(options.most_bad)) {}

  void GetEnded(size_t index, const RemoteDone& done, Seconds now);
  void CountLocked(const RemoteDone& done, Seconds now);
  std::optional<size_t> HintedLocked(const BlockKey& key) const;
  std::optional<size_t> FreeLocked() const;
  bool DropOldestLocked();

  mutable std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex.
  std::vector<Buffer> buffers;
  size_t puts_open = 0;
  uint64_t gets_begun = 0;
  Pause get_pause, put_pause;
  PageQuarantine bad;
  RemoteStoreStats stats;
};

void RemotePageStore::State::GetEnded(size_t index, const RemoteDone& done, Seconds now) {
  const std::lock_guard lock(mutex);
  Buffer& buffer = buffers[index];
  buffer.released = done.released;
  if (done.ended) {
    CountLocked(done, now);
    buffer.under_way = false;
    buffer.error = done.error;
    buffer.length = done.length;
    buffer.there = !done.error && (buffer.claimed || buffer.wanted);
    stats.unwanted += !done.error && !buffer.there;
  }
  changed.notify_all();
}

void RemotePageStore::State::CountLocked(const RemoteDone& done, Seconds now) {
  if (!done.error) {
    ++stats.hits;
    stats.got += done.length;
    get_pause.Ended();
  } else if (done.error->code == Code::kNotFound) {
    ++stats.misses;
    get_pause.Ended();
  } else if (done.error->code == Code::kDeadlineExceeded) {
    ++stats.late;
    get_pause.Failed(now);
  } else {
    ++stats.failed;
  }
}

std::optional<size_t> RemotePageStore::State::HintedLocked(const BlockKey& key) const {
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Buffer& buffer = buffers[i];
    if (!buffer.claimed && buffer.wanted && buffer.key == key) return i;
  }
  return std::nullopt;
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

class RemoteReader final : public PageReader {
 public:
  RemoteReader(RemotePageStore& store, size_t buffer, PageHead head)
      : store_(store), buffer_(buffer), head_(std::move(head)) {}
  RemoteReader(const RemoteReader&) = delete;
  RemoteReader& operator=(const RemoteReader&) = delete;
  ~RemoteReader() override { store_.EndReading(buffer_); }

  const PageHeader& header() const override { return head_.header; }

  Result<void> ReadLayers(int first, int count, std::span<std::byte> to) override {
    const PageShape& shape = head_.header.shape;
    const auto layer = static_cast<size_t>(shape.layer_bytes);
    CHECK(first >= 0 && count >= 0 && first + count <= shape.layers &&
          to.size() == static_cast<size_t>(count) * layer);
    const auto payload = store_.At(buffer_).subspan(kPageHeadBytes);
    for (int i = first; i < first + count; ++i, to = to.subspan(layer)) {
      const auto from = payload.subspan(static_cast<size_t>(i) * layer, layer);
      if (CopyWithSum(to.first(layer), from) == head_.sums[static_cast<size_t>(i)]) continue;
      return store_.Fail(head_.header.key,
                         {Code::kDataLoss, Format("layer {} is not what was put", i)});
    }
    return {};
  }

 private:
  RemotePageStore& store_;
  const size_t buffer_;
  const PageHead head_;
};

Bytes RemotePageStore::MemoryFor(const PageShape& shape) {
  const int64_t bytes = BufferBytes(shape);
  return Bytes(std::clamp(kStaging / bytes, kFewest, kMost) * bytes);
}

RemotePageStore::RemotePageStore(std::shared_ptr<RemoteHub> hub, const RemoteStoreOptions& options)
    : hub_(std::move(hub)),
      options_(options),
      object_bytes_(static_cast<size_t>(BufferBytes(options.shape))),
      state_(std::make_shared<State>(options)) {
  CHECK(CheckEncodable({.shape = options.shape}).ok(), "a shape that no page has");
  state_->buffers.resize(hub_->memory().size() / object_bytes_);
  CHECK(!state_->buffers.empty(), "no room for an object of {} bytes", object_bytes_);
}

RemotePageStore::~RemotePageStore() {
  const std::lock_guard lock(state_->mutex);
  for (const State::Buffer& buffer : state_->buffers) {
    CHECK(!buffer.claimed, "a reader outlives its store");
  }
}

std::span<std::byte> RemotePageStore::At(size_t buffer) const {
  return hub_->memory().subspan(buffer * object_bytes_, object_bytes_);
}

// ---- Reading

// Requires the lock, and a free buffer.
void RemotePageStore::BeginGet(size_t index, const BlockKey& key) {
  State::Buffer& buffer = state_->buffers[index];
  buffer = {.key = key, .under_way = true, .released = false, .begun = ++state_->gets_begun};
  ++state_->stats.gets;
  // The object's own length, so that one that is too long is not taken for a good one.
  const size_t object = kPageHeadBytes + static_cast<size_t>(options_.shape.PayloadBytes());
  hub_->Get(key, At(index).first(object), options_.get,
            [state = state_, index, clock = &hub_->clock()](const RemoteDone& done) {
              state->GetEnded(index, done, clock->Now());
            });
}

bool RemotePageStore::WillOpen(const BlockKey& key) {
  const std::lock_guard lock(state_->mutex);
  State& s = *state_;
  if (s.get_pause.Holds(hub_->clock().Now()) || s.bad.Holds(key, Tier::kRemote)) return true;
  if (s.HintedLocked(key)) return true;
  const auto free = s.FreeLocked();
  if (!free) return false;
  BeginGet(*free, key);
  s.buffers[*free].wanted = true;
  return true;
}

void RemotePageStore::WontOpen(const BlockKey& key) {
  const std::lock_guard lock(state_->mutex);
  const auto hinted = state_->HintedLocked(key);
  if (!hinted) return;
  State::Buffer& buffer = state_->buffers[*hinted];
  state_->stats.unwanted += buffer.there;
  buffer.wanted = buffer.there = false;
  state_->changed.notify_all();
}

// A buffer with the object, or on its way there; it is the caller's then.
Result<size_t> RemotePageStore::Claim(const BlockKey& key, Seconds until) {
  std::unique_lock lock(state_->mutex);
  State& s = *state_;
  const Clock& clock = hub_->clock();
  if (s.bad.Holds(key, Tier::kRemote)) {
    return Error{Code::kNotFound, Format("remote pool: page {} failed a check before", key.Hex())};
  }
  auto index = s.HintedLocked(key);
  while (!index) {
    const Seconds now = clock.Now();
    if (s.get_pause.Holds(now)) {
      ++s.stats.skipped;
      return Error{Code::kUnavailable, "the remote pool was late just now"};
    }
    index = s.FreeLocked();
    if (index) {
      BeginGet(*index, key);
    } else if (now >= until) {
      ++s.stats.skipped;
      return Error{Code::kResourceExhausted, "all buffers of the remote pool are in use"};
    } else if (!s.DropOldestLocked()) {
      s.changed.wait_for(lock, std::chrono::duration<double>((until - now).value));
    }
  }
  s.buffers[*index].claimed = true;
  return *index;
}

Result<std::unique_ptr<PageReader>> RemotePageStore::Open(const BlockKey& key) {
  return OpenWithin(key, options_.get + kSlack);
}

Result<std::unique_ptr<PageReader>> RemotePageStore::OpenWithin(const BlockKey& key, Seconds time) {
  const Seconds until = hub_->clock().Now() + std::min(time, options_.get + kSlack);
  ASSIGN_OR_RETURN(const size_t index, Claim(key, until));
  auto head = [&]() -> Result<PageHead> {
    ASSIGN_OR_RETURN(const Bytes length, WaitFor(index, until));
    return Check(key, At(index).first(static_cast<size_t>(length.value)));
  }();
  if (head) return std::unique_ptr<PageReader>(new RemoteReader(*this, index, std::move(*head)));
  EndReading(index);
  const Error& error = head.error();
  if (error.code == Code::kDataLoss || error.code == Code::kOutOfRange) return Fail(key, error);
  if (error.code == Code::kNotFound) return error;
  return Error{Code::kUnavailable, Format("remote pool: {}", error.message)};
}

// The object's length once it is there.
Result<Bytes> RemotePageStore::WaitFor(size_t index, Seconds until) {
  std::unique_lock lock(state_->mutex);
  const State::Buffer& buffer = state_->buffers[index];
  const double left = std::max((until - hub_->clock().Now()).value, 0.0);
  state_->changed.wait_for(lock, std::chrono::duration<double>(left),
                           [&] { return !buffer.under_way; });
  if (buffer.under_way) return Error{Code::kUnavailable, "it did not give the page in time"};
  if (buffer.error) return *buffer.error;
  return buffer.length;
}

Result<PageHead> RemotePageStore::Check(const BlockKey& key,
                                        std::span<const std::byte> object) const {
  auto head = ReadPageHead(object);
  if (!head) return Error{Code::kDataLoss, head.error().message};
  if (object.size() != kPageHeadBytes + static_cast<size_t>(options_.shape.PayloadBytes())) {
    return Error{Code::kDataLoss, Format("{} bytes are not one page", object.size())};
  }
  PageHeader asked = head->header;  // Where it stands in its chain is its reader's to check.
  asked.key = key;
  asked.shape = options_.shape;
  asked.model = options_.model;
  RETURN_IF_ERROR(CheckIsAsked(head->header, asked));
  return head;
}

// Takes a page that failed its check out of the pool.
Error RemotePageStore::Fail(const BlockKey& key, const Error& error) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->bad.Failed(key, Tier::kRemote);
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

// ---- Writing

struct RemotePageStore::PutCall {
  std::vector<std::byte> object;
  bool ended = false;  // Guarded by the state's mutex.
  std::optional<Error> error;
};

Result<void> RemotePageStore::Put(const PageHeader& header, std::span<const std::byte> payload) {
  if (header.shape != options_.shape || header.model != options_.model) {
    return Error{Code::kInvalidArgument,
                 Format("remote pool: page {} has another shape or model", header.key.Hex())};
  }
  RETURN_IF_ERROR(AdmitPut(header.key));
  const auto call = std::make_shared<PutCall>();
  call->object = EncodePageObject(header, payload);
  hub_->Put(header.key, call->object, options_.put, [state = state_, call](const RemoteDone& done) {
    const std::lock_guard lock(state->mutex);
    if (done.ended) {
      call->ended = true;
      call->error = done.error;
    }
    if (done.released) --state->puts_open;
    state->changed.notify_all();
  });
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, std::chrono::duration<double>((options_.put + kSlack).value),
                           [&] { return call->ended; });
  if (!call->ended) call->error = Error{Code::kDeadlineExceeded, "it did not answer in time"};
  return EndPutLocked(header.key, *call);
}

// Counts a put as begun.
Result<void> RemotePageStore::AdmitPut(const BlockKey& key) {
  const std::lock_guard lock(state_->mutex);
  State& s = *state_;
  if (s.bad.Bars(key, Tier::kRemote)) {
    return Error{Code::kUnavailable,
                 Format("remote pool: page {} never comes out whole", key.Hex())};
  }
  const bool full = s.puts_open >= options_.most_puts;
  if (full || s.put_pause.Holds(hub_->clock().Now())) {
    ++s.stats.skipped;
    return Error{Code::kResourceExhausted, full ? "remote pool: it still reads puts that were late"
                                                : "remote pool: it was late or full just now"};
  }
  ++s.puts_open;
  return {};
}

Result<void> RemotePageStore::EndPutLocked(const BlockKey& key, const PutCall& call) {
  State& s = *state_;
  if (call.error) {
    ++s.stats.puts_failed;
    const Code code = call.error->code;
    if (code == Code::kDeadlineExceeded || code == Code::kResourceExhausted) {
      s.put_pause.Failed(hub_->clock().Now());
    }
    return WithContext(*call.error, "remote pool");
  }
  ++s.stats.puts;
  s.stats.put += Bytes(static_cast<int64_t>(call.object.size()));
  s.put_pause.Ended();
  s.bad.Rewritten(key, Tier::kRemote);
  return {};
}

void RemotePageStore::Remove(const BlockKey& key) { hub_->Remove({key}, kRemove); }

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
