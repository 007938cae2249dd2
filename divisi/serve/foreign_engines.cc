#include "divisi/serve/foreign_engines.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <iterator>
#include <mutex>
#include <optional>
#include <utility>

#include "divisi/core/format.h"
#include "divisi/kv/held_blocks.h"
#include "divisi/serve/cluster_events.h"
#include "divisi/serve/metric_lines.h"
#include "divisi/serve/metrics.h"

namespace divisi {
namespace {

// Of one Absorb: some milliseconds.
constexpr size_t kBlocksAtATime = 8192;
// An engine without a connection for so long is taken for gone; looked at so often.
constexpr Seconds kLost{3}, kLookAfter{0.5};

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
    std::optional<Seconds> lost_at;
  };

  Followed* Of(SourceId source) {
    const auto found = std::ranges::find(engines, source, &Followed::source);
    return found == engines.end() ? nullptr : &*found;
  }
  void Take(const SourceUpdate& heard);
  void LookAfterLost(Seconds now);

  mutable std::mutex mutex;
  // Guarded by mutex; the engines' settings are not, and do not change.
  std::vector<Followed> engines;
  std::deque<SourceUpdate> heard;
  Seconds looked_at;
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
    state->engines.push_back({std::move(engine), source, HeldBlocks(), std::nullopt});
  }
  return std::unique_ptr<ForeignEngines>(new ForeignEngines(std::move(state)));
}

void ForeignEngines::State::Take(const SourceUpdate& heard) {
  Followed* const of = Of(heard.source);
  if (of == nullptr) return;
  if (heard.update.forget) of->held.Clear();
  for (const KvEvent& event : heard.update.events) of->held.Apply(event);
}

void ForeignEngines::State::LookAfterLost(Seconds now) {
  if (now - looked_at < kLookAfter) return;
  looked_at = now;
  for (const SourceStatus& status : subscriber->statuses()) {
    Followed* const of = Of(status.source);
    if (of == nullptr) continue;
    if (status.stream.connected || of->held.size() == 0) {
      of->lost_at.reset();
    } else if (!of->lost_at) {
      of->lost_at = now;
    } else if (now - *of->lost_at >= kLost) {
      // Followed anew, it tells all that it has when it is there again.
      subscriber->Drop(of->source);
      if (const auto again = subscriber->Follow(of->engine.source)) of->source = *again;
      of->held.Clear();
      of->lost_at.reset();
    }
  }
}

void ForeignEngines::Absorb(Seconds now) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  for (size_t blocks = 0; blocks < kBlocksAtATime; s.heard.pop_front()) {
    if (s.heard.empty()) std::ranges::move(s.subscriber->Take(), std::back_inserter(s.heard));
    if (s.heard.empty()) break;
    blocks += PagesOf(s.heard.front().update);
    s.Take(s.heard.front());
  }
  s.LookAfterLost(now);
}

std::vector<ForeignPrefix> ForeignEngines::Holding(const Request& request) const {
  const std::vector<State::Followed>& engines = state_->engines;
  // Names cost more than looking them up: they are made once for all engines that make them alike,
  // and nobody waits meanwhile.
  std::vector<std::vector<EventHash>> chains(engines.size());
  for (size_t i = 0; i < engines.size(); ++i) {
    const ForeignHashes& hashes = engines[i].engine.hashes;
    // Only vLLM's names tell tenants apart.
    if (!request.cache_salt.empty() && hashes.scheme != HashScheme::kVllm) continue;
    const auto alike = std::ranges::find_if(
        engines, [&](const auto& other) { return other.engine.hashes == hashes; });
    const auto first = static_cast<size_t>(alike - engines.begin());
    chains[i] = first < i ? chains[first]
                          : ForeignKeys(hashes, {.cache_salt = request.cache_salt}, request.prompt);
  }
  std::vector<ForeignPrefix> all;
  const std::lock_guard lock(state_->mutex);
  for (size_t i = 0; i < engines.size(); ++i) {
    const std::vector<EventTier> prefix = engines[i].held.Prefix(chains[i]);
    if (prefix.empty()) continue;
    all.push_back(
        {.engine = engines[i].engine.name,
         .tokens = static_cast<int64_t>(prefix.size()) * engines[i].engine.hashes.block_tokens,
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
      lines.Sample(Format("engine=\"{}\"", EscapeLabel(status.name)),
                   static_cast<double>(value(status)));
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
