// The clients' side of a cluster's requests: who is to be told of each, its timeline, and what all
// of them add up to.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "divisi/control/dispatcher.h"
#include "divisi/engine/engine.h"

namespace divisi {

class ClusterRequests {
 public:
  // A sink that is to be called, by whoever holds no lock.
  struct Telling {
    Engine::EventSink sink;
    RequestEvent event;
  };

  void Begin(RequestId request, Engine::EventSink sink, int64_t prompt_tokens, Seconds now);
  // How its workers were chosen: the attempts' one after the other.
  void NoteRoute(RequestId request, const std::string& route);
  // Nothing happens for a request that has ended, or that nobody began.
  void Take(DispatchEvent event, Seconds now);
  std::vector<Telling> TakeTellings();
  bool HasTellings() const { return !tellings_.empty(); }
  // Prompt and generated tokens, and finish reasons, since the start.
  const EngineStats& counters() const { return counters_; }

 private:
  struct Live {
    Engine::EventSink sink;
    Timeline timeline;
    int64_t prompt_tokens = 0;
  };
  std::map<RequestId, Live> live_;
  std::vector<Telling> tellings_;
  EngineStats counters_;
};

}  // namespace divisi
