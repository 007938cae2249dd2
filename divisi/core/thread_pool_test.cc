#include "divisi/core/thread_pool.h"

#include <gtest/gtest.h>

#include <numeric>

namespace divisi {
namespace {

TEST(ThreadPoolTest, RunsEachTaskOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int64_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<int> counts(static_cast<size_t>(tasks));
      pool.Run(tasks, [&](int64_t task, int thread) {
        ASSERT_LT(thread, threads);
        ++counts[static_cast<size_t>(task)];
      });
      EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0), tasks);
    }
  }
}

TEST(ThreadPoolTest, ManyShortRunsInARow) {
  ThreadPool pool(3);
  std::atomic<int64_t> sum = 0;
  for (int i = 0; i < 20000; ++i) pool.Run(4, [&](int64_t task, int) { sum += task; });
  EXPECT_EQ(sum.load(), 20000 * 6);
}

// More threads than cores: a run must not wait for workers that have nothing to do.
TEST(ThreadPoolTest, DoesNotWaitForWorkersWithoutTasks) {
  ThreadPool alone(1);
  ThreadPool crowded(64);
  const auto time = [](ThreadPool& pool) {
    std::atomic<int64_t> sum = 0;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 2000; ++i) pool.Run(2, [&](int64_t task, int) { sum += task; });
    EXPECT_EQ(sum.load(), 2000);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  time(alone);
  // With a join of all 64, on two cores, each run took some hundred context switches: over 100 us.
  EXPECT_LT(time(crowded), 2000 * 100e-6 * 64);
}

TEST(ThreadPoolTest, WakesAfterSleep) {
  ThreadPool pool(2);
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int> done = 0;
    pool.Run(8, [&](int64_t, int) { ++done; });
    EXPECT_EQ(done.load(), 8);
  }
}

}  // namespace
}  // namespace divisi
