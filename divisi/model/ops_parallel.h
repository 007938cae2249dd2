// How operations spread over threads: in tasks, each with subnormals flushed.
#pragma once

#include <algorithm>
#include <cstdint>

#include "divisi/core/thread_pool.h"
#include "divisi/model/flush_subnormals.h"

namespace divisi {

// Tasks are taken as threads become free; this many even out what a neighbour takes from a core.
inline constexpr int64_t kTasksPerThread = 8;
// Numbers that a task of a row-wise operation should touch before a second thread pays.
inline constexpr int64_t kTaskElements = 8192;

// fn(task, thread) for each task.
template <typename Fn>
void RunFlushed(ThreadPool& pool, int64_t tasks, Fn fn) {
  pool.Run(tasks, [&](int64_t task, int thread) {
    const FlushSubnormals flush;
    fn(task, thread);
  });
}

// fn(row) for each row, neighbours together.
template <typename Fn>
void ForRows(ThreadPool& pool, int64_t rows, int64_t row_elements, Fn fn) {
  if (rows == 0) return;
  const int64_t most = std::min(rows, kTasksPerThread * pool.threads());
  const int64_t tasks = std::clamp<int64_t>(rows * row_elements / kTaskElements, 1, most);
  RunFlushed(pool, tasks, [&](int64_t task, int) {
    for (int64_t row = rows * task / tasks; row < rows * (task + 1) / tasks; ++row) fn(row);
  });
}

}  // namespace divisi
