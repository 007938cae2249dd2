// What the gateway needs of whatever runs requests: this process's engine, or a router over many
// workers. The seam that lets the gateway's tests script every step.
#pragma once

#include <string>
#include <string_view>

#include "divisi/engine/engine.h"

namespace divisi {

class RequestBackend {
 public:
  virtual ~RequestBackend() = default;
  // As Engine's: submit, with events from another thread; cancel, idempotent; counters.
  virtual Result<RequestId> Submit(Request request, Engine::EventSink sink) = 0;
  virtual void Cancel(RequestId id) = 0;
  // What the client calls it, for who looks into the backend. Any time after Submit.
  virtual void Label(RequestId, std::string_view) {}
  virtual EngineStats stats() const = 0;
  // Why no request can run now; empty: they can. For /health.
  virtual std::string NotReady() const { return {}; }
  // Its own lines of /metrics, each sample with `labels`.
  virtual std::string Metrics(std::string_view) const { return {}; }
};

class EngineBackend final : public RequestBackend {
 public:
  explicit EngineBackend(Engine& engine) : engine_(engine) {}
  Result<RequestId> Submit(Request request, Engine::EventSink sink) override {
    return engine_.Submit(std::move(request), std::move(sink));
  }
  void Cancel(RequestId id) override { engine_.Cancel(id); }
  EngineStats stats() const override { return engine_.stats(); }

 private:
  Engine& engine_;
};

}  // namespace divisi
