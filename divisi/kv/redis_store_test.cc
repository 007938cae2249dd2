// Against a redis-server that the test starts on a socket of its own; skipped where none is
// installed (scripts/setup.sh test).
#include "divisi/kv/redis_store.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <vector>

#include "divisi/core/format.h"
#include "divisi/kv/page_object.h"

namespace divisi {
namespace {

const SteadyClock& TheClock() {
  static const SteadyClock clock;
  return clock;
}
constexpr Seconds kSoon{5};

BlockKey KeyOf(uint8_t number) {
  BlockKey key;
  key.bytes.fill(number);
  return key;
}

std::vector<std::byte> ObjectOf(uint8_t number, int64_t layer = 100000) {
  PageHeader header;
  header.shape.layers = 3;
  header.shape.layer_bytes = layer;
  header.key = KeyOf(number);
  const std::vector<std::byte> payload(static_cast<size_t>(3 * layer), std::byte{number});
  return EncodePageObject(header, payload);
}

std::string ServerPath() {
  for (const char* path : {"/usr/bin/redis-server", "/usr/local/bin/redis-server"}) {
    if (access(path, X_OK) == 0) return path;
  }
  return "";
}

class Server {
 public:
  explicit Server(std::vector<std::string> arguments = {}) : arguments_(std::move(arguments)) {
    Start();
  }
  ~Server() {
    Kill();
    std::filesystem::remove_all(folder_);
  }
  std::string socket() const { return folder_ + "/redis.sock"; }
  void Start() {
    std::filesystem::create_directories(folder_);
    pid_ = fork();
    if (pid_ == 0) {
      std::vector<std::string> words{
          ServerPath(), "--port", "0",         "--unixsocket", socket(),      "--save", "",
          "--dir",      folder_,  "--logfile", "/dev/null",    "--daemonize", "no"};
      words.insert(words.end(), arguments_.begin(), arguments_.end());
      std::vector<char*> argv;
      for (std::string& word : words) argv.push_back(word.data());
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  void Signal(int number) const { kill(pid_, number); }
  void Kill() {
    if (pid_ == 0) return;
    kill(pid_, SIGCONT);
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
    std::filesystem::remove(socket());
  }

 private:
  const std::vector<std::string> arguments_;
  const std::string folder_ = testing::TempDir() + Format("divisi-redis-{}", getpid());
  pid_t pid_ = 0;
};

struct Client {
  std::unique_ptr<RemotePages> pages;
  std::map<uint64_t, RemoteDone> ended;

  explicit Client(RedisStoreOptions options) {
    options.first_backoff = Seconds(0.02);
    options.most_backoff = Seconds(0.1);
    options.grace = Seconds(0.5);
    pages = MakeRedisStore(options, TheClock());
  }
  explicit Client(const Server& server) : Client(RedisStoreOptions{.unix_path = server.socket()}) {}

  bool Ready() {
    for (int i = 0; i < 10000 && !pages->health()[0].ready; ++i) poll(nullptr, 0, 1);
    return pages->health()[0].ready;
  }
  std::optional<Code> Wait(uint64_t call) {
    for (int i = 0; i < 20000 && !ended.contains(call); ++i) {
      for (RemoteDone& done : pages->Poll()) {
        EXPECT_TRUE(done.released);
        ended[done.call] = std::move(done);
      }
      if (!ended.contains(call)) poll(nullptr, 0, 1);
    }
    if (!ended.contains(call)) return Code::kInternal;
    const auto& error = ended.at(call).error;
    return error ? std::optional(error->code) : std::nullopt;
  }
};

class RedisStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    if (ServerPath().empty()) GTEST_SKIP() << "no redis-server";
  }
};

TEST_F(RedisStoreTest, WhatIsPutIsGot) {
  Server server;
  Client client(server);
  ASSERT_TRUE(client.Ready());
  std::vector<std::vector<std::byte>> objects, places(20);
  for (uint8_t i = 0; i < 20; ++i) objects.push_back(ObjectOf(i));
  std::vector<uint64_t> calls;
  for (uint8_t i = 0; i < 20; ++i) {
    calls.push_back(client.pages->Put(KeyOf(i), objects[i], kSoon));
    places[i].resize(objects[i].size());
    calls.push_back(client.pages->Get(KeyOf(i), places[i], kSoon));  // Behind its put
  }
  for (const auto call : calls) EXPECT_EQ(client.Wait(call), std::nullopt);
  EXPECT_EQ(places, objects);
  EXPECT_EQ(client.ended.at(calls[1]).length, Bytes(static_cast<int64_t>(objects[0].size())));
  EXPECT_EQ(client.Wait(client.pages->Put(KeyOf(1), objects[1], kSoon)), std::nullopt);
  std::vector<std::byte> small(10);
  EXPECT_EQ(client.Wait(client.pages->Get(KeyOf(1), small, kSoon)), Code::kOutOfRange);
  EXPECT_EQ(client.Wait(client.pages->Get(KeyOf(99), places[0], kSoon)), Code::kNotFound);
  const RemoteHealth health = client.pages->health()[0];
  EXPECT_GT(health.rate.value, 0);
  // Another program's, of no bytes, and for a place of none.
  EXPECT_EQ(client.Wait(client.pages->Put(KeyOf(77), std::span(small).first(0), kSoon)),
            std::nullopt);
  const auto empty = client.pages->Get(KeyOf(77), {}, kSoon);
  EXPECT_EQ(client.Wait(empty), std::nullopt);
  EXPECT_EQ(client.ended.at(empty).length, Bytes(0));
}

TEST_F(RedisStoreTest, HasRemoveAndClear) {
  Server server;
  Client client(server);
  ASSERT_TRUE(client.Ready());
  const auto object = ObjectOf(0, 10);
  for (uint8_t i = 0; i < 200; ++i) {
    EXPECT_EQ(client.Wait(client.pages->Put(KeyOf(i), object, kSoon)), std::nullopt);
  }
  const std::vector keys{KeyOf(3), KeyOf(250), KeyOf(0)};
  const auto has = client.pages->Has(keys, kSoon);
  EXPECT_EQ(client.Wait(has), std::nullopt);
  EXPECT_EQ(client.ended.at(has).have, (std::vector{true, false, true}));
  const auto remove = client.pages->Remove(keys, kSoon);
  EXPECT_EQ(client.Wait(remove), std::nullopt);
  EXPECT_EQ(client.ended.at(remove).count, 2);
  EXPECT_EQ(client.Wait(client.pages->Has({}, kSoon)), std::nullopt);
  const auto clear = client.pages->Clear(kSoon);
  EXPECT_EQ(client.Wait(clear), std::nullopt);
  EXPECT_EQ(client.ended.at(clear).count, 198);
}

TEST_F(RedisStoreTest, AServerThatHangsOrDiesEndsCallsInTime) {
  Server server;
  Client client(server);
  ASSERT_TRUE(client.Ready());
  const auto object = ObjectOf(1);
  std::vector<std::byte> place(object.size());
  EXPECT_EQ(client.Wait(client.pages->Put(KeyOf(1), object, kSoon)), std::nullopt);
  server.Signal(SIGSTOP);
  const Seconds start = TheClock().Now();
  EXPECT_EQ(client.Wait(client.pages->Get(KeyOf(1), place, Seconds(0.1))), Code::kDeadlineExceeded);
  EXPECT_LT((TheClock().Now() - start).value, 1);
  server.Signal(SIGCONT);
  poll(nullptr, 0, 50);
  EXPECT_EQ(place[0], std::byte{0});  // Late bytes go nowhere.
  ASSERT_TRUE(client.Ready());
  EXPECT_EQ(client.Wait(client.pages->Get(KeyOf(1), place, kSoon)), std::nullopt);
  const auto get = client.pages->Get(KeyOf(1), place, kSoon);
  server.Kill();
  const auto code = client.Wait(get);
  EXPECT_TRUE(!code || *code == Code::kUnavailable);
  for (int i = 0; i < 5000 && client.pages->health()[0].ready; ++i) poll(nullptr, 0, 1);
  EXPECT_EQ(client.Wait(client.pages->Get(KeyOf(1), place, kSoon)), Code::kUnavailable);
  server.Start();
  ASSERT_TRUE(client.Ready());
  EXPECT_EQ(client.Wait(client.pages->Get(KeyOf(1), place, kSoon)), Code::kNotFound);
}

TEST_F(RedisStoreTest, AFullServerRefuses) {
  Server server({"--maxmemory", "4mb", "--maxmemory-policy", "noeviction"});
  Client client(server);
  ASSERT_TRUE(client.Ready());
  std::optional<Code> code;
  const auto object = ObjectOf(1);
  for (uint8_t i = 0; i < 40 && !code; ++i) {
    code = client.Wait(client.pages->Put(KeyOf(i), object, kSoon));
  }
  EXPECT_EQ(code, Code::kResourceExhausted);
}

TEST_F(RedisStoreTest, APasswordIsNeededWhereThereIsOne) {
  Server server({"--requirepass", "open sesame"});
  Client client(RedisStoreOptions{.unix_path = server.socket(), .password = "open sesame"});
  ASSERT_TRUE(client.Ready());
  Client stranger(server);
  for (int i = 0; i < 5000 && stranger.pages->health()[0].failures < 1; ++i) poll(nullptr, 0, 1);
  EXPECT_NE(stranger.pages->health()[0].reason.find("NOAUTH"), std::string::npos)
      << stranger.pages->health()[0].reason;
}

TEST(RedisStoreAloneTest, WithoutAServerCallsFailAtOnce) {
  Client client(RedisStoreOptions{.unix_path = "/nowhere/redis.sock"});
  std::vector<std::byte> place(10);
  EXPECT_EQ(client.Wait(client.pages->Get(KeyOf(1), place, kSoon)), Code::kUnavailable);
}

}  // namespace
}  // namespace divisi
