#include "divisi/kv/remote_index.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "divisi/kv/store_message.h"

namespace divisi {
namespace {

constexpr size_t kMostQuestions = 256;

}  // namespace

struct RemoteIndex::State {
  // A question in parts of at most kMaxStoreKeys keys.
  struct Question {
    std::vector<std::vector<bool>> parts;
    size_t left = 0;
  };

  void AnswerLocked(uint64_t id, std::vector<bool> have) {
    answers.push_back({id, std::move(have)});
  }
  void Ended(uint64_t id, size_t part, const RemoteDone& done);
  void Wake() {
    const std::lock_guard lock(wake_mutex);
    if (wake) wake();
  }

  std::mutex mutex;
  std::map<uint64_t, Question> questions;
  std::vector<Answer> answers;
  std::mutex wake_mutex;  // Never together with `mutex`.
  std::function<void()> wake;
};

// What can be used is the run up to the first part that failed.
void RemoteIndex::State::Ended(uint64_t id, size_t part, const RemoteDone& done) {
  if (!done.ended) return;
  {
    const std::lock_guard lock(mutex);
    const auto found = questions.find(id);
    Question& question = found->second;
    if (!done.error) question.parts[part] = done.have;
    if (--question.left > 0) return;
    std::vector<bool> have;
    for (const std::vector<bool>& each : question.parts) {
      if (each.empty()) break;
      have.insert(have.end(), each.begin(), each.end());
    }
    questions.erase(found);
    AnswerLocked(id, std::move(have));
  }
  Wake();
}

RemoteIndex::RemoteIndex(std::shared_ptr<RemoteHub> hub, Seconds deadline)
    : hub_(std::move(hub)), deadline_(deadline), state_(std::make_shared<State>()) {}
RemoteIndex::~RemoteIndex() { WakeBy({}); }

void RemoteIndex::Ask(uint64_t id, std::vector<BlockKey> keys) {
  std::vector<std::vector<BlockKey>> parts;
  for (size_t from = 0; from < keys.size(); from += kMaxStoreKeys) {
    const size_t count = std::min(kMaxStoreKeys, keys.size() - from);
    const auto first = keys.begin() + static_cast<int64_t>(from);
    parts.emplace_back(first, first + static_cast<int64_t>(count));
  }
  {
    const std::lock_guard lock(state_->mutex);
    if (parts.empty() || state_->questions.size() >= kMostQuestions) {
      return state_->AnswerLocked(id, {});
    }
    State::Question& question = state_->questions[id];
    question.parts.resize(parts.size());
    question.left = parts.size();
  }
  for (size_t part = 0; part < parts.size(); ++part) {
    hub_->Has(std::move(parts[part]), deadline_,
              [state = state_, id, part](const RemoteDone& done) { state->Ended(id, part, done); });
  }
}

std::vector<RemoteIndex::Answer> RemoteIndex::TakeAnswers() {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->answers, {});
}

void RemoteIndex::WakeBy(std::function<void()> wake) {
  const std::lock_guard lock(state_->wake_mutex);
  state_->wake = std::move(wake);
}

}  // namespace divisi
