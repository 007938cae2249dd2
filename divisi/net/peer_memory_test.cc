#include "divisi/net/peer_memory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace divisi {
namespace {

constexpr size_t kSize = 3 << 20;

// A child with 7s in memory at the same addresses as the parent's (it is forked), and a proof.
class PeerMemoryTest : public testing::Test {
 protected:
  PeerMemoryTest() : bytes_(kSize, std::byte{1}) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      std::memset(bytes_.data(), 7, kSize);
      const PeerMemory own = OwnMemory(&proof_);
      (void)!write(ends[1], &own, sizeof(own));
      for (;;) pause();
    }
    EXPECT_EQ(read(ends[0], &peer_, sizeof(peer_)), static_cast<ssize_t>(sizeof(peer_)));
    close(ends[0]);
    close(ends[1]);
  }
  ~PeerMemoryTest() override { Kill(); }
  void Kill() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  uint64_t Address() const { return reinterpret_cast<uintptr_t>(bytes_.data()); }

  const uint64_t proof_ = 0x1234567;
  std::vector<std::byte> bytes_;
  pid_t pid_ = 0;
  PeerMemory peer_;
};

TEST_F(PeerMemoryTest, ReadsTheOther) {
  if (!ReadPeerMemory(peer_, 0, nullptr, 0)) GTEST_SKIP() << "this system does not allow it";
  std::vector<std::byte> copy(kSize);
  EXPECT_TRUE(ReadPeerMemory(peer_, Address(), copy.data(), kSize));
  EXPECT_EQ(copy, std::vector<std::byte>(kSize, std::byte{7}));
}

TEST_F(PeerMemoryTest, TwoThreadsReadTheSame) {
  if (!ReadPeerMemory(peer_, 0, nullptr, 0)) GTEST_SKIP() << "this system does not allow it";
  PeerReader reader;
  for (const size_t size : {size_t{0}, size_t{7}, size_t{600'001}, kSize}) {
    std::vector<std::byte> copy(kSize);
    EXPECT_TRUE(reader.Read(peer_, Address(), copy.data(), size));
    EXPECT_EQ(std::ranges::count(copy, std::byte{7}), static_cast<ptrdiff_t>(size));
    EXPECT_TRUE(std::all_of(copy.begin(), copy.begin() + static_cast<ptrdiff_t>(size),
                            [](std::byte b) { return b == std::byte{7}; }));
  }
  std::vector<std::byte> copy(kSize);
  EXPECT_FALSE(reader.Read(peer_, ~uint64_t{0} - kSize, copy.data(), kSize));
  Kill();
  EXPECT_FALSE(reader.Read(peer_, Address(), copy.data(), kSize));
}

TEST_F(PeerMemoryTest, RefusesTheWrongProcessTheDeadAndTheUnmapped) {
  std::vector<std::byte> copy(kSize);
  PeerMemory wrong = peer_;
  wrong.proof ^= 2;
  EXPECT_FALSE(ReadPeerMemory(wrong, Address(), copy.data(), kSize));
  wrong = peer_;
  wrong.proof_address = 16;
  EXPECT_FALSE(ReadPeerMemory(wrong, Address(), copy.data(), kSize));
  wrong = peer_;
  wrong.pid = 1;
  EXPECT_FALSE(ReadPeerMemory(wrong, 0, nullptr, 0));
  EXPECT_FALSE(ReadPeerMemory({}, 0, nullptr, 0));
  EXPECT_FALSE(ReadPeerMemory(peer_, 16, copy.data(), kSize));
  EXPECT_FALSE(ReadPeerMemory(peer_, ~uint64_t{0} - 8, copy.data(), kSize));
  Kill();
  EXPECT_FALSE(ReadPeerMemory(peer_, Address(), copy.data(), kSize));
}

}  // namespace
}  // namespace divisi
