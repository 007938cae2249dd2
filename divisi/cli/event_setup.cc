#include "divisi/cli/event_setup.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <utility>

#include "divisi/core/format.h"
#include "divisi/net/socket_address.h"

namespace divisi {
namespace {

// Batches for those who missed some. Of a worker that publishes without being asked to it is less
// than vLLM's 10,000 batches may take; who missed more gets a snapshot.
constexpr size_t kRingBytes = size_t{32} << 20;

// A free port of the host of `listen`. Errors: kInvalidArgument.
Result<std::string> FreeEndpoint(const std::string& listen) {
  ASSIGN_OR_RETURN(const SocketAddress address, ParseSocketAddress(listen));
  if (address.IsWildcard()) return std::string("tcp://*:0");
  const std::string text = address.Text();
  return Format("tcp://{}:0", text.substr(0, text.rfind(':')));
}

Result<EventPublisherOptions> PublisherOptions(const EventSetup& setup) {
  EventPublisherOptions publisher{.endpoint = setup.options.live,
                                  .listens = true,
                                  .replay_endpoint = setup.options.replay,
                                  .topic = setup.topic};
  publisher.log.ring_bytes = kRingBytes;
  if (setup.options.live != "auto") return publisher;
  ASSIGN_OR_RETURN(publisher.endpoint, FreeEndpoint(setup.listen));
  if (publisher.replay_endpoint.empty()) publisher.replay_endpoint = publisher.endpoint;
  return publisher;
}

}  // namespace

std::string ProcessName() {
  char host[256] = "host";
  gethostname(host, sizeof host - 1);
  return Format("{}-{}", host, getpid());
}

void AddEventOptions(CLI::App& command, EventCommandOptions& options) {
  command
      .add_option("--kv-events", options.live,
                  "Where to publish what the caches hold, in vLLM's format: tcp://HOST:PORT, auto "
                  "(any free port where other workers' pages arrive), or off. Tokens of prompts "
                  "are among it: keep it on a private network")
      ->capture_default_str();
  command.add_option("--kv-events-replay", options.replay,
                     "Where those who missed some of it ask again: tcp://HOST:PORT [beside auto "
                     "any free port, else none]");
}

Result<std::unique_ptr<EventPublisher>> OpenEvents(const EventSetup& setup, const Clock& clock,
                                                   Logger& logger) {
  if (!setup.options.on()) return std::unique_ptr<EventPublisher>();
  auto options = PublisherOptions(setup);
  auto publisher = options ? EventPublisher::Open(*std::move(options), clock, logger)
                           : Result<std::unique_ptr<EventPublisher>>(options.error());
  if (publisher) {
    logger.Log(LogLevel::kInfo, "kv events",
               {{"endpoint", (*publisher)->endpoint()},
                {"replay", (*publisher)->replay_endpoint()},
                {"topic", setup.topic}});
    return std::move(*publisher);
  }
  const Error why = WithContext(publisher.error(), "--kv-events, --kv-events-replay");
  if (setup.options.live != "auto") return why;
  logger.Log(LogLevel::kWarning, "KV events are not published; routes go without",
             {{"why", why.message}});
  return std::unique_ptr<EventPublisher>();
}

}  // namespace divisi
