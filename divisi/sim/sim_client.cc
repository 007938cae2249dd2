#include "divisi/sim/sim_client.h"

#include <algorithm>

#include "divisi/core/check.h"
#include "divisi/core/format.h"
#include "divisi/engine/scheduler.h"
#include "divisi/sim/sim_executor.h"

namespace divisi {

SimClient SimClient::Draw(Random& random, bool alike) {
  SimClient client;
  Request& request = client.request_;
  const int64_t length = random.Between(1, random.Chance(alike ? 0.2 : 0.5) ? 20 : 80);
  // Stems that many prompts share, to some length, and that push each other out of small pools.
  const int64_t stem = random.Between(0, alike ? 7 : 3) * 100;
  const int64_t most = random.Chance(alike ? 0.95 : 0.6) ? length : 0;
  const int64_t common = random.Between(alike ? most / 2 : 0, most);
  for (int64_t t = 0; t < length; ++t) {
    request.prompt.push_back(
        static_cast<TokenId>(t < common ? stem + t : random.Between(0, 10000)));
  }
  request.max_tokens = random.Chance(0.15) ? 1 : random.Between(1, 40);
  request.sampling.seed = static_cast<uint64_t>(random.Between(0, 3));
  if (random.Chance(0.3)) {
    request.stop_token_ids = {static_cast<TokenId>(random.Between(0, kSimVocab - 1))};
  }
  client.arrives_ = Seconds(15 * random.Uniform() * (random.Chance(alike ? 0.2 : 0.5) ? 0.1 : 1));
  if (random.Chance(0.25)) {
    client.cancels_ = client.arrives_ + Seconds(3 * random.Uniform() * random.Uniform());
  }
  client.RunAlone();
  return client;
}

void SimClient::RunAlone() {
  Scheduler scheduler({.max_model_len = kSimMaxModelLen, .blocks = 8});
  SimExecutor executor({.blocks = 8, .vocab = kSimVocab});
  Request request = request_;
  request.id = 1;
  CHECK(scheduler.Add(request).ok());
  while (scheduler.HasWork()) {
    for (SchedulerEvent& event : scheduler.Commit(executor.Execute(scheduler.Plan()))) {
      if (event.kind == SchedulerEvent::Kind::kToken) expected_.push_back(event.token.token);
      if (event.kind == SchedulerEvent::Kind::kFinished) reason_ = event.reason;
    }
  }
}

std::string SimClient::Take(const DispatchEvent& event) {
  if (ended_) return Format("request {} goes on after its end", event.request);
  for (const SampledToken& token : event.tokens) got_.push_back(token.token);
  const bool begins =
      got_.size() <= expected_.size() && std::equal(got_.begin(), got_.end(), expected_.begin());
  if (!begins) return Format("request {} has other tokens than alone", event.request);
  if (!event.finish) return {};
  ended_ = true;
  if (event.finish == FinishReason::kError) return {};
  if (got_ == expected_ && *event.finish == reason_) return {};
  return Format("request {} ends with {} of {} tokens", event.request, got_.size(),
                expected_.size());
}

}  // namespace divisi
