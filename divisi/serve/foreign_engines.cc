#include "divisi/serve/foreign_engines.h"

#include <algorithm>
#include <charconv>
#include <mutex>
#include <optional>
#include <utility>

#include "divisi/core/format.h"
#include "divisi/kv/held_blocks.h"
#include "divisi/serve/metric_lines.h"

namespace divisi {
namespace {

Error Wrong(std::string_view text, const std::string& why) {
  return {Code::kInvalidArgument,
          Format("'{}' {}; expected NAME=SCHEME:LIVE[+REPLAY][;block=N][;seed=TEXT][;topic=TEXT]"
                 "[;bytes], as in a=vllm:tcp://10.0.0.7:5557+tcp://10.0.0.7:5558;block=16",
                 text, why)};
}

std::optional<HashScheme> SchemeOf(std::string_view name) {
  if (name == "vllm") return HashScheme::kVllm;
  if (name == "sglang") return HashScheme::kSglang;
  if (name == "dynamo") return HashScheme::kDynamo;
  return std::nullopt;
}

// The text up to `end`, which it and that lose; all of it where there is no such.
std::string_view CutBefore(std::string_view& text, char end) {
  const size_t at = std::min(text.find(end), text.size());
  const std::string_view head = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return head;
}

// False: there is no such setting, or it can't have that value.
bool Set(std::string_view setting, ForeignEngine& engine) {
  std::string_view value = setting;
  const std::string_view key = CutBefore(value, '=');
  if (key == "bytes") {
    engine.hashes.digest_bytes = true;
    return value.empty();
  }
  if (key == "seed") {
    engine.hashes.seed = value;
    return true;
  }
  if (key == "topic") {
    engine.source.topic = value;
    return true;
  }
  if (key != "block") return false;
  int64_t tokens = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), tokens);
  engine.hashes.block_tokens = tokens;
  return error == std::errc() && end == value.data() + value.size() && tokens >= 1 &&
         tokens <= 65536;
}

}  // namespace

Result<ForeignEngine> ParseForeignEngine(std::string_view text) {
  ForeignEngine engine;
  std::string_view rest = text;
  engine.name = CutBefore(rest, '=');
  if (engine.name.empty() || engine.name.size() == text.size()) {
    return Wrong(text, "has no name");
  }
  const std::string_view scheme = CutBefore(rest, ':');
  const auto known = SchemeOf(scheme);
  if (!known) return Wrong(text, Format("has an unknown scheme '{}'", scheme));
  engine.hashes.scheme = *known;
  std::string_view endpoints = CutBefore(rest, ';');
  engine.source.endpoint = CutBefore(endpoints, '+');
  engine.source.replay_endpoint = endpoints;
  if (engine.source.endpoint.empty()) return Wrong(text, "has no endpoint");
  while (!rest.empty()) {
    const std::string_view setting = CutBefore(rest, ';');
    if (!Set(setting, engine)) return Wrong(text, Format("has a wrong setting '{}'", setting));
  }
  return engine;
}

struct ForeignEngines::State {
  struct Followed {
    ForeignEngine engine;
    SourceId source = 0;
    HeldBlocks held;
  };

  Followed* Of(SourceId source) {
    const auto found = std::ranges::find(engines, source, &Followed::source);
    return found == engines.end() ? nullptr : &*found;
  }

  mutable std::mutex mutex;
  std::vector<Followed> engines;  // Guarded by mutex
  std::unique_ptr<EventSubscriber> subscriber;
};

ForeignEngines::ForeignEngines(std::unique_ptr<State> state) : state_(std::move(state)) {}
ForeignEngines::~ForeignEngines() = default;

Result<std::unique_ptr<ForeignEngines>> ForeignEngines::Follow(std::vector<ForeignEngine> engines,
                                                               const Clock& clock, Logger& logger) {
  auto state = std::make_unique<State>();
  state->subscriber = EventSubscriber::Open(clock, logger, [] {});
  for (ForeignEngine& engine : engines) {
    const auto same = [&](const State::Followed& other) {
      return other.engine.name == engine.name;
    };
    if (std::ranges::any_of(state->engines, same)) {
      return Error{Code::kInvalidArgument, Format("two engines have the name {}", engine.name)};
    }
    ASSIGN_OR_RETURN(const SourceId source, state->subscriber->Follow(engine.source));
    state->engines.push_back({std::move(engine), source, HeldBlocks()});
  }
  return std::unique_ptr<ForeignEngines>(new ForeignEngines(std::move(state)));
}

void ForeignEngines::Absorb() {
  const std::lock_guard lock(state_->mutex);
  for (const auto& [source, update] : state_->subscriber->Take()) {
    State::Followed* const of = state_->Of(source);
    if (of == nullptr) continue;
    if (update.forget) of->held.Clear();
    for (const KvEvent& event : update.events) of->held.Apply(event);
  }
}

std::vector<ForeignPrefix> ForeignEngines::Holding(const Request& request) const {
  std::vector<ForeignPrefix> all;
  const std::lock_guard lock(state_->mutex);
  for (const State::Followed& followed : state_->engines) {
    const ForeignHashes& hashes = followed.engine.hashes;
    // Only vLLM's names tell tenants apart.
    if (!request.cache_salt.empty() && hashes.scheme != HashScheme::kVllm) continue;
    if (followed.held.size() == 0) continue;
    const auto chain = ForeignKeys(hashes, {.cache_salt = request.cache_salt}, request.prompt);
    const std::vector<EventTier> prefix = followed.held.Prefix(chain);
    if (prefix.empty()) continue;
    all.push_back({.engine = followed.engine.name,
                   .tokens = static_cast<int64_t>(prefix.size()) * hashes.block_tokens,
                   .tier = std::ranges::max(prefix)});
  }
  return all;
}

std::vector<ForeignEngines::Status> ForeignEngines::statuses() const {
  const std::vector<SourceStatus> sources = state_->subscriber->statuses();
  std::vector<Status> statuses;
  const std::lock_guard lock(state_->mutex);
  for (const State::Followed& followed : state_->engines) {
    Status status{.name = followed.engine.name,
                  .blocks = static_cast<int64_t>(followed.held.size()),
                  .refused = static_cast<int64_t>(followed.held.refused())};
    const auto source = std::ranges::find(sources, followed.source, &SourceStatus::source);
    if (source != sources.end()) status.stream = source->stream;
    statuses.push_back(std::move(status));
  }
  return statuses;
}

std::string ForeignEngines::Metrics(std::string_view labels) const {
  const std::vector<Status> all = statuses();
  MetricLines lines(labels);
  const auto each = [&](auto value) {
    for (const Status& status : all) {
      lines.Sample(Format("engine=\"{}\"", status.name), static_cast<double>(value(status)));
    }
  };
  lines.Head("divisi:foreign_kv_connected", "gauge", "Whether a foreign engine's events come.");
  each([](const Status& status) { return status.stream.connected; });
  lines.Head("divisi:foreign_kv_blocks", "gauge", "Blocks that it holds, as far as is known.");
  each([](const Status& status) { return status.blocks; });
  lines.Head("divisi:foreign_kv_blocks_refused_total", "counter",
             "Blocks that were more than the gateway keeps of one engine.");
  each([](const Status& status) { return status.refused; });
  lines.Head("divisi:foreign_kv_event_losses_total", "counter",
             "Times that events were lost for good, and what was known of it was forgotten.");
  each([](const Status& status) { return status.stream.losses; });
  return lines.Take();
}

}  // namespace divisi
