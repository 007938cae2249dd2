// What a writer and an owner see when the process at the other end is killed or stopped. The other
// end is this program again, started with its duty as argument.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "divisi/core/clock.h"
#include "divisi/net/ucx_transport.h"

namespace divisi {
namespace {

constexpr size_t kPage = 1835008;  // 16 tokens of the 0.6B shape.
constexpr size_t kPages = 32;
using Kind = TransportEvent::Kind;

const SteadyClock& TheClock() {
  static const SteadyClock clock;
  return clock;
}

// network: the bytes go over UCX, though both ends are on one host.
std::unique_ptr<Transport> OpenAs(uint64_t id, bool network = false) {
  auto transport =
      OpenUcxTransport({.self = {id}, .read_peers = !network, .silence = Seconds(1.5)}, TheClock());
  CHECK(transport.ok(), "{}", transport.error().message);
  return std::move(*transport);
}

std::string Hex(std::string_view bytes) {
  std::string hex;
  for (const unsigned char c : bytes) hex += Format("{:02x}", c);
  return hex;
}

std::string Bytewise(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// Owner: says where it is, and lets others write for ever.
[[noreturn]] void RunOwner() {
  std::vector<std::byte> memory(kPage * kPages);
  auto transport = OpenAs(2);
  const auto region = transport->Register(memory);
  std::printf("%s %s\n", transport->address().c_str(), Hex(EncodeRegion(*region)).c_str());
  std::fflush(stdout);
  for (;;) WaitForEvents(*transport, Seconds(1));
}

// Writer: writes to the owner that the arguments name for ever.
[[noreturn]] void RunWriter(const std::string& address, const std::string& descriptor,
                            bool network) {
  std::vector<std::byte> page(kPage, std::byte{7});
  auto transport = OpenAs(3, network);
  const auto region = DecodeRegion(Bytewise(descriptor));
  CHECK(region.ok() && transport->Connect(*region, address).ok());
  std::printf("writing\n");
  std::fflush(stdout);
  for (uint64_t i = 0;; ++i) {
    const Bytes offset(static_cast<int64_t>(i % kPages * kPage));
    if (i < 8) (void)transport->Write({region->owner, page, offset, i});
    for (const auto& event : WaitForEvents(*transport, Seconds(1))) {
      if (event.kind == Kind::kWritten && event.ok) {
        (void)transport->Write({region->owner, page, offset, event.token});
      }
    }
  }
}

// This program as another process; its first line is `said`.
struct Child {
  pid_t pid = 0;
  std::string said;

  explicit Child(std::vector<std::string> arguments) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    std::vector<char*> argv = {const_cast<char*>("/proc/self/exe")};
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid = fork();
    if (pid == 0) {
      dup2(ends[1], STDOUT_FILENO);
      close(ends[0]);
      close(ends[1]);
      execv("/proc/self/exe", argv.data());
      _exit(127);
    }
    close(ends[1]);
    for (char c = 0; read(ends[0], &c, 1) == 1 && c != '\n';) said.push_back(c);
    close(ends[0]);
  }
  ~Child() { Kill(); }
  void Signal(int number) const { kill(pid, number); }
  void Kill() {
    if (pid == 0) return;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    pid = 0;
  }
};

// Keeps eight writes to the child under way.
class Writing {
 public:
  explicit Writing(const Child& child) : page_(kPage, std::byte{5}), transport_(OpenAs(1)) {
    const size_t space = child.said.find(' ');
    CHECK(space != child.said.npos, "'{}'", child.said);
    region_ = DecodeRegion(Bytewise(child.said.substr(space + 1))).value();
    CHECK(transport_->Connect(region_, child.said.substr(0, space)).ok());
    for (int i = 0; i < 8; ++i) Write();
  }

  // Until lost, at most so long: how long it took.
  Seconds RunUntilLost(Seconds most) {
    const Seconds start = TheClock().Now();
    while (!lost && TheClock().Now() - start < most) Step();
    return TheClock().Now() - start;
  }
  // Until a write has ended well, at most so long.
  void RunUntilGood(Seconds most) {
    const Seconds end = TheClock().Now() + most;
    while (!lost && good == 0 && TheClock().Now() < end) Step();
  }

  bool lost = false;
  int64_t good = 0, failed = 0, begun = 0;

 private:
  void Write() {
    const Bytes offset(begun % static_cast<int64_t>(kPages) * static_cast<int64_t>(kPage));
    if (transport_->Write({region_.owner, page_, offset, static_cast<uint64_t>(begun)})) ++begun;
  }
  void Step() {
    for (const auto& event : WaitForEvents(*transport_, Seconds(0.05))) {
      if (event.kind == Kind::kLost) lost = true;
      if (event.kind != Kind::kWritten) continue;
      ++(event.ok ? good : failed);
      if (event.ok) Write();
    }
  }

  const std::vector<std::byte> page_;
  std::unique_ptr<Transport> transport_;
  RegionDescriptor region_;
};

TEST(UcxDeathTest, WriterOfAKilledOwnerIsToldSoon) {
  Child owner({"owner"});
  Writing writing(owner);
  writing.RunUntilGood(Seconds(20));
  ASSERT_GT(writing.good, 0);
  owner.Kill();
  EXPECT_LT(writing.RunUntilLost(Seconds(10)), Seconds(3));
  EXPECT_TRUE(writing.lost);
  EXPECT_EQ(writing.good + writing.failed, writing.begun);
  EXPECT_GT(writing.failed, 0);
}

TEST(UcxDeathTest, WriterOfAStoppedOwnerIsToldAfterSilence) {
  Child owner({"owner"});
  Writing writing(owner);
  writing.RunUntilGood(Seconds(20));
  ASSERT_GT(writing.good, 0);
  owner.Signal(SIGSTOP);
  EXPECT_LT(writing.RunUntilLost(Seconds(15)), Seconds(5));
  EXPECT_TRUE(writing.lost);
  EXPECT_EQ(writing.good + writing.failed, writing.begun);
}

// The owner's side of a killed, and of a stopped and continued writer. A stopped one is in the
// midst of its writes, whose bytes are partly in sockets when it is barred.
void ExpectFenced(int number, bool network) {
  SCOPED_TRACE(Format("signal {}, {}", number, network ? "network" : "memory"));
  std::vector<std::byte> memory(kPage * kPages);
  auto owner = OpenAs(2, network);
  const auto region = owner->Register(memory).value();
  Child writer({"writer", owner->address(), Hex(EncodeRegion(region)), network ? "network" : ""});
  const Seconds start = TheClock().Now();
  while (owner->stats().bytes_received < static_cast<int64_t>(20 * kPage)) {
    (void)WaitForEvents(*owner, Seconds(0.1));
    ASSERT_LT(TheClock().Now() - start, Seconds(20));
  }
  writer.Signal(number);
  const Seconds soon = TheClock().Now() + Seconds(5);
  auto fenced = owner->Refuse({3});
  while (!fenced && TheClock().Now() < soon) {
    (void)WaitForEvents(*owner, Seconds(0.01));
    fenced = owner->Refuse({3});
  }
  EXPECT_TRUE(fenced.ok()) << fenced.error().message;
  std::fill(memory.begin(), memory.end(), std::byte{0});
  writer.Signal(SIGCONT);
  const Seconds later = TheClock().Now() + Seconds(0.5);
  while (TheClock().Now() < later) (void)WaitForEvents(*owner, Seconds(0.1));
  EXPECT_TRUE(
      std::all_of(memory.begin(), memory.end(), [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(owner->stats().connections, 0);
}

TEST(UcxDeathTest, OwnerFencesAWriter) {
  for (const bool network : {false, true}) {
    for (const int number : {SIGKILL, SIGSTOP}) ExpectFenced(number, network);
  }
}

}  // namespace
}  // namespace divisi

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "owner") == 0) divisi::RunOwner();
  if (argc > 4 && std::strcmp(argv[1], "writer") == 0) {
    divisi::RunWriter(argv[2], argv[3], std::strcmp(argv[4], "network") == 0);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
