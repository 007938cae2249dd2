// Which pages the remote pool has: asked without waiting, for who decides.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "divisi/kv/remote_hub.h"

namespace divisi {

class RemoteIndex {
 public:
  struct Answer {
    uint64_t id = 0;
    std::vector<bool> have;  // Of the first keys; empty: it could not be asked.
  };

  // deadline: of an answer.
  RemoteIndex(std::shared_ptr<RemoteHub> hub, Seconds deadline);
  ~RemoteIndex();

  // Each id is answered once. Beyond 256 questions at a time the answer is empty, at once.
  void Ask(uint64_t id, std::vector<BlockKey> keys);
  std::vector<Answer> TakeAnswers();
  // wake: called when TakeAnswers has something, from the pool's thread; empty: nobody listens any
  // more, once this returns.
  void WakeBy(std::function<void()> wake);

 private:
  struct State;
  const std::shared_ptr<RemoteHub> hub_;
  const Seconds deadline_;
  const std::shared_ptr<State> state_;  // Shared with sinks, which may come later.
};

}  // namespace divisi
