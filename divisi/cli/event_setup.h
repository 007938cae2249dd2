// From a command's options to the KV events that a process publishes (docs/kv.md, "Events").
#pragma once

#include <memory>
#include <string>

#include "divisi/core/clock.h"
#include "divisi/core/log.h"
#include "divisi/core/result.h"
#include "divisi/kv/event_socket.h"

namespace CLI {
class App;
}  // namespace CLI

namespace divisi {

struct EventCommandOptions {
  std::string live = "off";  // An endpoint, "auto" (any free port), or "off"
  std::string replay;        // An endpoint; empty: beside an "auto" one, else none

  bool on() const { return live != "off"; }
};

// --kv-events, --kv-events-replay
void AddEventOptions(CLI::App& command, EventCommandOptions& options);

// "host-pid", of this process.
std::string ProcessName();

struct EventSetup {
  EventCommandOptions options;
  std::string listen;  // HOST:PORT of another port of the process: "auto" listens on that host.
  std::string topic;
};
// None where nothing is to be published, and where "auto" finds no port, which is logged. clock and
// logger outlive the result.
// Errors: kInvalidArgument, kUnavailable for an endpoint that was given, with the option.
Result<std::unique_ptr<EventPublisher>> OpenEvents(const EventSetup& setup, const Clock& clock,
                                                   Logger& logger);

}  // namespace divisi
