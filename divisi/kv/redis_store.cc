#include "divisi/kv/redis_store.h"

#include <hiredis/hiredis.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "divisi/core/check.h"
#include "divisi/core/format.h"
#include "divisi/kv/store_message.h"
#include "divisi/net/wake_bell.h"

namespace divisi {
namespace {

constexpr Seconds kPing{0.5};
constexpr Seconds kSleep{0.1};
constexpr Seconds kSleepWithCalls{0.002};
constexpr size_t kPiece = size_t{256} << 10;  // Of one read
constexpr double kNewest = 0.25;              // The weight of the latest rate and latency.

struct FreeContext {
  void operator()(redisContext* context) const { redisFree(context); }
};
struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

Error TooLate() { return {Code::kDeadlineExceeded, "Redis did not answer in time"}; }

Error ErrorOf(const redisReply& reply) {
  const std::string text(reply.str, reply.len);
  if (text.starts_with("OOM")) {
    return {Code::kResourceExhausted,
            "Redis has no room: " + text + "; set its maxmemory-policy to allkeys-lru"};
  }
  return {Code::kUnavailable, "Redis says: " + text};
}

struct Command {
  enum class Kind { kGet, kPut, kHas, kRemove, kClear, kPing, kLogin };
  Kind kind = Kind::kGet;
  uint64_t call = 0;
  std::vector<BlockKey> keys;
  std::span<std::byte> to;
  std::span<const std::byte> object;
  Seconds deadline;
  Seconds sent;
  size_t replies = 1;  // Still to come
  bool told = false;
  RemoteDone done;

  Bytes size() const { return Bytes(static_cast<int64_t>(to.size() + object.size())); }
};

class RedisStore final : public RemotePages {
 public:
  RedisStore(RedisStoreOptions options, const Clock& clock)
      : options_(std::move(options)), clock_(clock), backoff_(options_.first_backoff) {
    health_.address = options_.unix_path.empty() ? Format("{}:{}", options_.host, options_.port)
                                                 : options_.unix_path;
    health_.reason = "not connected yet";
    thread_ = std::thread([this] { Loop(); });
  }
  ~RedisStore() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      bell_.Ring();
    }
    thread_.join();
  }

  uint64_t Get(const BlockKey& key, std::span<std::byte> to, Seconds deadline) override {
    return Leave({.kind = Command::Kind::kGet, .keys = {key}, .to = to}, deadline);
  }
  uint64_t Put(const BlockKey& key, std::span<const std::byte> object, Seconds deadline) override {
    return Leave({.kind = Command::Kind::kPut, .keys = {key}, .object = object}, deadline);
  }
  uint64_t Has(std::vector<BlockKey> keys, Seconds deadline) override {
    CHECK(keys.size() <= kMaxStoreKeys);
    return Leave({.kind = Command::Kind::kHas, .keys = std::move(keys)}, deadline);
  }
  uint64_t Remove(std::vector<BlockKey> keys, Seconds deadline) override {
    CHECK(keys.size() <= kMaxStoreKeys);
    return Leave({.kind = Command::Kind::kRemove, .keys = std::move(keys)}, deadline);
  }
  uint64_t Clear(Seconds deadline) override {
    return Leave({.kind = Command::Kind::kClear}, deadline);
  }
  std::vector<RemoteDone> Poll() override {
    const std::lock_guard lock(mutex_);
    return std::exchange(done_, {});
  }
  std::vector<RemoteHealth> health() const override {
    const std::lock_guard lock(mutex_);
    return {health_};
  }

 private:
  uint64_t Leave(Command command, Seconds deadline) {
    command.deadline = clock_.Now() + deadline;
    const std::lock_guard lock(mutex_);
    command.call = ++last_call_;
    inbox_.push_back(std::move(command));
    bell_.Ring();
    return last_call_;
  }

  void Loop();
  void Connect(Seconds now);
  void Login();
  void Break(const std::string& why, Seconds now);
  void CheckTime(Seconds now);
  void Pump(Seconds now);
  void Append(std::initializer_list<std::string_view> words);
  void Send(const Command& command);
  void Wait(Seconds now);
  void Read(Seconds now);
  void Hear(const redisReply& reply, Seconds now);
  void HearGet(Command& command, const redisReply& reply);
  void HearClear(Command& command, const redisReply& reply);
  void Tell(Command& command);
  void Measure(const Command& command, Seconds now);
  std::string Name(const BlockKey& key) const { return options_.prefix + key.Hex(); }

  const RedisStoreOptions options_;
  const Clock& clock_;
  // The thread's own.
  std::unique_ptr<redisContext, FreeContext> redis_;
  bool connected_ = false;
  Seconds due_;  // Unconnected: when to try; connecting: when to give up.
  Seconds backoff_;
  Seconds ping_at_;
  std::deque<Command> waiting_;
  std::deque<Command> sent_;  // In the order of their replies
  Bytes under_way_;
  Seconds busy_since_;  // Since when gets have been under way, and what they brought.
  Bytes brought_;
  std::vector<char> piece_ = std::vector<char>(kPiece);

  const WakeBell bell_;
  mutable std::mutex mutex_;
  std::deque<Command> inbox_;
  std::vector<RemoteDone> done_;
  RemoteHealth health_;
  uint64_t last_call_ = 0;
  bool stop_ = false;

  std::thread thread_;  // Last: it uses the rest.
};

void RedisStore::Loop() {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return;
      for (Command& command : inbox_) waiting_.push_back(std::move(command));
      inbox_.clear();
      health_.under_way = under_way_;
    }
    const Seconds now = clock_.Now();
    CheckTime(now);
    if (!redis_ && now >= due_) Connect(now);
    if (redis_ && connected_) Pump(now);
    Wait(now);
  }
}

// ---- The connection

void RedisStore::Connect(Seconds now) {
  redis_.reset(options_.unix_path.empty()
                   ? redisConnectNonBlock(options_.host.c_str(), options_.port)
                   : redisConnectUnixNonBlock(options_.unix_path.c_str()));
  due_ = now + options_.step;
  if (!redis_ || redis_->err != 0) Break(redis_ ? redis_->errstr : "no memory", now);
}

void RedisStore::Login() {
  connected_ = true;
  ping_at_ = Seconds(0);
  const auto add = [this](std::initializer_list<std::string_view> words) {
    Append(words);
    sent_.push_back({.kind = Command::Kind::kLogin, .deadline = due_});
  };
  const std::string database = std::to_string(options_.database);
  if (!options_.password.empty() && !options_.user.empty()) {
    add({"AUTH", options_.user, options_.password});
  } else if (!options_.password.empty()) {
    add({"AUTH", options_.password});
  }
  add({"SELECT", database});
}

void RedisStore::Break(const std::string& why, Seconds now) {
  redis_.reset();
  connected_ = false;
  due_ = now + backoff_;
  backoff_ = std::min(options_.most_backoff, backoff_ * 2.0);
  {
    const std::lock_guard lock(mutex_);
    health_.ready = false;
    health_.reason = why;
    ++health_.failures;
  }
  for (auto* queue : {&sent_, &waiting_}) {
    for (Command& command : *queue) {
      command.done.error = Error{Code::kUnavailable, health_.address + " does not serve: " + why};
      Tell(command);
    }
    queue->clear();
  }
  under_way_ = Bytes(0);
}

void RedisStore::CheckTime(Seconds now) {
  const bool down = !connected_ && health_.failures > 0;
  for (auto* queue : {&sent_, &waiting_}) {
    for (Command& command : *queue) {
      if (command.told || (now < command.deadline && !down)) continue;
      command.done.error =
          down ? Error{Code::kUnavailable, health_.address + " does not serve: " + health_.reason}
               : TooLate();
      // Nothing is copied to its memory any more. Of a put, the value was copied.
      Tell(command);
    }
  }
  std::erase_if(waiting_, [](const Command& command) { return command.told; });
  const bool stuck = !sent_.empty() && now >= sent_.front().deadline + options_.grace;
  if (redis_ && (stuck || (!connected_ && now >= due_))) Break("no answer in time", now);
  if (connected_ && now >= ping_at_) {
    ping_at_ = now + kPing;
    Append({"PING"});
    sent_.push_back({.kind = Command::Kind::kPing, .deadline = now + options_.grace, .sent = now});
  }
}

// ---- Commands

// hiredis moves what is unsent with each write: so the next value goes in when all is sent.
void RedisStore::Pump(Seconds now) {
  int sent = 0;
  do {
    while (!waiting_.empty() && sdslen(redis_->obuf) < kPiece) {
      Command& command = waiting_.front();
      const bool full =
          under_way_.value > 0 && under_way_ + command.size() > options_.most_under_way;
      if (full) break;
      if (under_way_.value == 0) {
        busy_since_ = now;
        brought_ = Bytes(0);
      }
      under_way_ += command.size();
      command.sent = now;
      if (command.kind == Command::Kind::kHas) {
        command.replies = command.keys.size();
        command.done.have.reserve(command.keys.size());
      }
      if (command.keys.empty() && command.kind != Command::Kind::kClear) {
        Tell(command);  // Nothing to ask.
      } else {
        Send(command);
        sent_.push_back(std::move(command));
      }
      waiting_.pop_front();
    }
    if (redisBufferWrite(redis_.get(), &sent) != REDIS_OK) return Break(redis_->errstr, now);
  } while (
      sent != 0 && !waiting_.empty() &&
      (under_way_.value == 0 || under_way_ + waiting_.front().size() <= options_.most_under_way));
}

void RedisStore::Append(std::initializer_list<std::string_view> words) {
  std::vector<const char*> starts;
  std::vector<size_t> sizes;
  for (const std::string_view word : words) {
    starts.push_back(word.data());
    sizes.push_back(word.size());
  }
  CHECK(redisAppendCommandArgv(redis_.get(), static_cast<int>(starts.size()), starts.data(),
                               sizes.data()) == REDIS_OK);
}

void RedisStore::Send(const Command& command) {
  switch (command.kind) {
    case Command::Kind::kGet:
      return Append({"GET", Name(command.keys[0])});
    case Command::Kind::kPut: {
      const std::string_view value(reinterpret_cast<const char*>(command.object.data()),
                                   command.object.size());
      return Append({"SET", Name(command.keys[0]), value, "NX"});
    }
    case Command::Kind::kHas:
      for (const BlockKey& key : command.keys) Append({"EXISTS", Name(key)});
      return;
    case Command::Kind::kRemove: {
      std::vector<std::string> words{"UNLINK"};
      for (const BlockKey& key : command.keys) words.push_back(Name(key));
      std::vector<const char*> starts;
      std::vector<size_t> sizes;
      for (const std::string& word : words) {
        starts.push_back(word.data());
        sizes.push_back(word.size());
      }
      CHECK(redisAppendCommandArgv(redis_.get(), static_cast<int>(starts.size()), starts.data(),
                                   sizes.data()) == REDIS_OK);
      return;
    }
    case Command::Kind::kClear:
      return Append({"SCAN", "0", "MATCH", options_.prefix + "*", "COUNT", "1000"});
    case Command::Kind::kPing:
    case Command::Kind::kLogin:
      return;
  }
}

// ---- Replies

void RedisStore::Wait(Seconds now) {
  const bool busy = !sent_.empty() || !waiting_.empty();
  Seconds most = busy ? kSleepWithCalls : kSleep;
  if (!redis_) most = std::min(most, std::max(Seconds(0), due_ - now));
  pollfd fds[] = {{bell_.fd(), POLLIN, 0}, {redis_ ? redis_->fd : -1, POLLIN, 0}};
  if (redis_ && (!connected_ || sdslen(redis_->obuf) > 0)) fds[1].events |= POLLOUT;
  (void)poll(fds, 2, static_cast<int>(most.value * 1000) + 1);
  bell_.Hush();
  if (!redis_ || fds[1].revents == 0) return;
  if (!connected_) {
    int error = 0;
    socklen_t size = sizeof error;
    (void)getsockopt(redis_->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    return error != 0 ? Break(std::strerror(error), clock_.Now()) : Login();
  }
  if ((fds[1].revents & (POLLIN | POLLHUP | POLLERR)) != 0) Read(clock_.Now());
}

void RedisStore::Read(Seconds now) {
  const ssize_t got = read(redis_->fd, piece_.data(), piece_.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return Break(got == 0 ? "it ended the connection" : std::strerror(errno), now);
  if (redisReaderFeed(redis_->reader, piece_.data(), static_cast<size_t>(got)) != REDIS_OK) {
    return Break(redis_->reader->errstr, now);
  }
  while (redis_) {
    void* raw = nullptr;
    if (redisReaderGetReply(redis_->reader, &raw) != REDIS_OK) {
      return Break(redis_->reader->errstr, now);
    }
    if (raw == nullptr) return;
    const Reply reply(static_cast<redisReply*>(raw));
    if (sent_.empty()) return Break("it answers what was not asked", now);
    Hear(*reply, now);
  }
}

void RedisStore::Hear(const redisReply& reply, Seconds now) {
  Command& command = sent_.front();
  const bool failed = reply.type == REDIS_REPLY_ERROR;
  if (failed) command.done.error = ErrorOf(reply);
  switch (command.kind) {
    case Command::Kind::kLogin:
      if (failed) return Break(std::string(reply.str, reply.len), now);
      break;
    case Command::Kind::kGet:
      if (!failed) HearGet(command, reply);
      break;
    case Command::Kind::kHas:
      command.done.have.push_back(!failed && reply.integer == 1);
      break;
    case Command::Kind::kRemove:
      command.done.count = failed ? 0 : reply.integer;
      break;
    case Command::Kind::kClear:
      if (!failed) HearClear(command, reply);
      break;
    case Command::Kind::kPut:  // With or without: it was there, or is now.
    case Command::Kind::kPing:
      break;
  }
  if (--command.replies > 0) return;
  under_way_ = under_way_ - command.size();
  Measure(command, now);
  Tell(command);
  sent_.pop_front();
}

void RedisStore::HearGet(Command& command, const redisReply& reply) {
  if (reply.type != REDIS_REPLY_STRING) {
    command.done.error = Error{Code::kNotFound, "Redis has no such object"};
  } else if (reply.len > command.to.size()) {
    command.done.error = Error{Code::kOutOfRange, StoreStatusText(StoreStatus::kTooLarge)};
  } else if (!command.told) {
    if (reply.len > 0) std::memcpy(command.to.data(), reply.str, reply.len);
    command.done.length = Bytes(static_cast<int64_t>(reply.len));
  }
}

// Goes through all keys, some thousand at a time; what is found is unlinked before the next look.
void RedisStore::HearClear(Command& command, const redisReply& reply) {
  if (reply.type == REDIS_REPLY_INTEGER) {
    command.done.count += reply.integer;
    return;
  }
  const bool sense = reply.type == REDIS_REPLY_ARRAY && reply.elements == 2 &&
                     reply.element[0]->type == REDIS_REPLY_STRING &&
                     reply.element[1]->type == REDIS_REPLY_ARRAY;
  if (!sense) return;
  const redisReply& found = *reply.element[1];
  std::vector<const char*> starts{"UNLINK"};
  std::vector<size_t> sizes{6};
  for (size_t i = 0; i < found.elements; ++i) {
    if (found.element[i]->type != REDIS_REPLY_STRING) continue;
    starts.push_back(found.element[i]->str);
    sizes.push_back(found.element[i]->len);
  }
  // Their replies come behind those of later commands: so they are commands of their own, and the
  // last of them ends the call.
  Command next{.kind = Command::Kind::kClear,
               .call = command.call,
               .deadline = command.deadline,
               .sent = command.sent,
               .replies = 0,
               .told = command.told,
               .done = command.done};
  if (starts.size() > 1) {
    CHECK(redisAppendCommandArgv(redis_.get(), static_cast<int>(starts.size()), starts.data(),
                                 sizes.data()) == REDIS_OK);
    ++next.replies;
  }
  const std::string cursor(reply.element[0]->str, reply.element[0]->len);
  if (cursor != "0") {
    Append({"SCAN", cursor, "MATCH", options_.prefix + "*", "COUNT", "1000"});
    ++next.replies;
  }
  if (next.replies == 0) return;
  command.told = true;
  sent_.push_back(std::move(next));
}

void RedisStore::Tell(Command& command) {
  const bool ready = command.kind == Command::Kind::kLogin && !command.done.error;
  if (ready) {
    backoff_ = options_.first_backoff;
    const std::lock_guard lock(mutex_);
    health_.ready = true;
    health_.reason.clear();
  }
  if (command.call == 0 || std::exchange(command.told, true)) return;
  command.done.call = command.call;
  if (command.done.error) command.done.have.clear();
  {
    const std::lock_guard lock(mutex_);
    done_.push_back(std::move(command.done));
  }
  options_.wake();
}

void RedisStore::Measure(const Command& command, Seconds now) {
  const auto smooth = [](double before, double latest) {
    return before > 0 ? before + kNewest * (latest - before) : latest;
  };
  const std::lock_guard lock(mutex_);
  if (command.kind == Command::Kind::kPing) {
    health_.latency = Seconds(smooth(health_.latency.value, (now - command.sent).value));
  }
  if (command.kind != Command::Kind::kGet || command.done.error) return;
  brought_ += command.done.length;
  const double taken = (now - busy_since_).value;
  if (taken <= 0 || (under_way_.value > 0 && brought_ < Bytes(int64_t{4} << 20))) return;
  health_.rate =
      BytesPerSecond(smooth(health_.rate.value, static_cast<double>(brought_.value) / taken));
  busy_since_ = now;
  brought_ = Bytes(0);
}

}  // namespace

std::unique_ptr<RemotePages> MakeRedisStore(RedisStoreOptions options, const Clock& clock) {
  return std::make_unique<RedisStore>(std::move(options), clock);
}

}  // namespace divisi
