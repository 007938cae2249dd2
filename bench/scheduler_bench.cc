// What deciding a step costs: Plan and Commit of the scheduler alone, the executor's part left out,
// in processor time, which others on the machine disturb least.
//   scheduler_bench [--tiny]
// decode: all sequences run and draw one token each. churn: outputs of 64 tokens end and prompts of
// 512 follow at once, half of each prompt shared, 200 requests waiting, most pages in use.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "divisi/core/check.h"
#include "divisi/core/random.h"
#include "divisi/engine/scheduler.h"

namespace divisi {
namespace {

double CpuSeconds() {
  timespec now;
  CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Load {
  const char* name;
  int64_t sequences;
  int64_t prompt_tokens;
  int64_t output_tokens;
  int64_t waiting;
  int warm_up;
};

class Measurement {
 public:
  explicit Measurement(const Load& load)
      : load_(load), random_(load.sequences), scheduler_(OptionsFor(load)) {}

  void Run(int steps) {
    for (int i = 0; i < load_.warm_up; ++i) Step();
    step_seconds_.clear();
    slices_ = tokens_ = 0;
    for (int i = 0; i < steps; ++i) Step();
    std::ranges::sort(step_seconds_);
    const auto at = [this](double part) {
      return 1e6 * step_seconds_[static_cast<size_t>(part * (step_seconds_.size() - 1))];
    };
    std::printf(
        "%-7s %5lld sequences  %7.1f us/step median  %7.1f p10  %7.1f p90  %7.1f p99"
        "   %7.1f slices/step  %7.1f tokens/step  %lld preemptions\n",
        load_.name, static_cast<long long>(load_.sequences), at(0.5), at(0.1), at(0.9), at(0.99),
        static_cast<double>(slices_) / steps, static_cast<double>(tokens_) / steps,
        static_cast<long long>(scheduler_.stats().preemptions));
  }

 private:
  static SchedulerOptions OptionsFor(const Load& load) {
    const int64_t length = load.prompt_tokens + load.output_tokens;
    return {.max_sequences = load.sequences,
            .max_batched_tokens = std::max<int64_t>(8192, load.sequences),
            .max_model_len = length,
            .max_waiting = load.sequences + load.waiting,
            .blocks = load.sequences * (length / kBlockTokens + 2)};
  }

  void Refill() {
    const SchedulerStats stats = scheduler_.stats();
    for (int64_t n = stats.running + stats.waiting; n < load_.sequences + load_.waiting; ++n) {
      Request request;
      request.id = ++last_id_;
      request.max_tokens = load_.output_tokens;
      for (int64_t i = 0; i < load_.prompt_tokens; ++i) {
        const bool shared = i < load_.prompt_tokens / 2;
        request.prompt.push_back(static_cast<TokenId>(shared ? i : random_.Between(0, 100000)));
      }
      CHECK(scheduler_.Add(std::move(request)).ok());
    }
  }

  void Step() {
    Refill();
    const double start = CpuSeconds();
    const StepPlan& plan = scheduler_.Plan();
    const double planned = CpuSeconds();
    std::vector<SliceResult> results(plan.slices.size());
    for (size_t i = 0; i < results.size(); ++i) {
      if (plan.slices[i].sample) results[i].sampled = SampledToken{.token = 7};
    }
    slices_ += static_cast<int64_t>(plan.slices.size());
    tokens_ += plan.tokens;
    const double executed = CpuSeconds();
    const auto events = scheduler_.Commit(std::move(results));
    const double committed = CpuSeconds();
    step_seconds_.push_back(planned - start + committed - executed);
  }

  const Load load_;
  Random random_;
  Scheduler scheduler_;
  RequestId last_id_ = 0;
  std::vector<double> step_seconds_;
  int64_t slices_ = 0;
  int64_t tokens_ = 0;
};

}  // namespace
}  // namespace divisi

int main(int argc, char** argv) {
  const bool tiny = argc > 1 && std::strcmp(argv[1], "--tiny") == 0;
  const int steps = tiny ? 20 : 2000;
  for (const int64_t sequences : {1, 32, 256, 1000}) {
    divisi::Measurement({"decode", sequences, 64, 4000, 0, 20}).Run(steps);
  }
  for (const int64_t sequences : {32, 256, 1000}) {
    divisi::Measurement({"churn", sequences, 512, 64, 200, tiny ? 5 : 200}).Run(steps);
  }
  return 0;
}
