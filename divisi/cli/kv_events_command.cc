// divisi kv-events: what workers, ours or others', publish of their caches.
#include <CLI/CLI.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>

#include "divisi/cli/commands.h"
#include "divisi/cli/kv_events_text.h"
#include "divisi/core/clock.h"
#include "divisi/core/format.h"
#include "divisi/core/log.h"
#include "divisi/kv/event_socket.h"

namespace divisi {
namespace {

struct Options {
  std::vector<std::string> connect = {"tcp://127.0.0.1:5557"};
  std::vector<std::string> replay;
  std::string topic;
  std::string format = "text";
  uint64_t batches = 0;
  double seconds = 0;
};

// Without a connection for so long, a person is told what to look at.
constexpr Seconds kHint{3};
constexpr std::chrono::milliseconds kLook{200};

struct Shown {
  std::string endpoint;
  EventStreamStats stats;
  HeldBlocks held;
};

class Watch {
 public:
  explicit Watch(const Options& options)
      : options_(options),
        subscriber_(EventSubscriber::Open(clock_, logger_, [this] { Ring(); })) {}

  void Run() {
    FollowAll();
    const Seconds begin = clock_.Now();
    bool hinted = false;
    while (!Enough(clock_.Now() - begin)) {
      WaitForSome();
      if (!ShowUpdates()) return;
      ShowNews();
      if (!hinted && clock_.Now() - begin > kHint) hinted = Hint();
    }
    for (const auto& [id, shown] : sources_) {
      Say(shown, HeldText(shown.stats, shown.held) + "\n");
    }
  }

 private:
  void FollowAll() {
    if (options_.replay.size() > options_.connect.size()) {
      FailCommand({Code::kInvalidArgument, "more --replay than --connect; give one of each"});
    }
    for (size_t i = 0; i < options_.connect.size(); ++i) {
      EventSource source;
      source.endpoint = options_.connect[i];
      if (i < options_.replay.size()) source.replay_endpoint = options_.replay[i];
      source.topic = options_.topic;
      const auto id = subscriber_->Follow(source);
      if (!id) FailCommand(id.error());
      sources_[*id].endpoint = source.endpoint;
    }
  }

  void Ring() {
    const std::lock_guard lock(mutex_);
    rung_ = true;
    woken_.notify_one();
  }
  void WaitForSome() {
    std::unique_lock lock(mutex_);
    woken_.wait_for(lock, kLook, [this] { return rung_; });
    rung_ = false;
  }
  bool Enough(Seconds passed) const {
    return (options_.batches > 0 && batches_ >= options_.batches) ||
           (options_.seconds > 0 && passed.value >= options_.seconds);
  }

  // False: nobody reads any more.
  bool ShowUpdates() {
    for (const auto& [id, update] : subscriber_->Take()) {
      Shown& shown = sources_[id];
      if (update.forget) shown.held.Clear();
      for (const KvEvent& event : update.events) shown.held.Apply(event);
      batches_ += !update.events.empty();
      std::string text = KvEventsText(update);
      if (options_.format == "json") {
        Json json = KvEventsJson(update);
        json.Set("endpoint", shown.endpoint);
        text = json.Dump() + "\n";
      }
      std::fputs(text.c_str(), stdout);
    }
    return std::fflush(stdout) == 0;
  }

  void ShowNews() {
    for (const SourceStatus& status : subscriber_->statuses()) {
      Shown& shown = sources_[status.source];
      Say(shown, StreamNews(shown.stats, status.stream));
      shown.stats = status.stream;
    }
  }

  bool Hint() {
    for (const auto& [id, shown] : sources_) {
      if (shown.stats.connected) continue;
      Say(shown,
          "no connection yet; does the worker publish there? Of vLLM: --kv-events-config "
          "'{\"enable_kv_cache_events\": true, \"publisher\": \"zmq\", \"endpoint\": "
          "\"tcp://*:5557\", \"replay_endpoint\": \"tcp://*:5558\"}'\n");
    }
    return true;
  }

  // To people, beside the events: each line with its source where there are several.
  void Say(const Shown& shown, const std::string& lines) const {
    if (lines.empty()) return;
    const std::string from = sources_.size() > 1 ? shown.endpoint + ": " : std::string();
    std::fprintf(stderr, "%s%s", from.c_str(), lines.c_str());
  }

  const Options& options_;
  SteadyClock clock_;
  Logger logger_{{}};
  std::map<SourceId, Shown> sources_;
  uint64_t batches_ = 0;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool rung_ = false;
  std::unique_ptr<EventSubscriber> subscriber_;  // Ends first: it rings.
};

constexpr const char* kFooter =
    "Text has a line for each event: batch, what, blocks, medium, hash of the first. JSON has a "
    "line "
    "for each\nbatch: {forget, sequence, time_seconds, data_parallel_rank, events [{type, "
    "block_hashes, parent_block_hash,\ntoken_ids, block_size, medium, ...}], endpoint}. What "
    "happens to the connection goes to standard error.\n\n"
    "With --replay the batches that were published before come first (a worker keeps 10,000), and "
    "those that\nare missed are asked for. Without it, a gap makes all that was known be "
    "forgotten. "
    "See docs/kv.md, Events.\n\n"
    "Examples:\n"
    "  divisi kv-events --connect tcp://10.0.0.7:5557 --replay tcp://10.0.0.7:5558\n"
    "  divisi kv-events --connect tcp://10.0.0.7:5557 --format json --batches 10 | jq .events";

}  // namespace

void AddKvEventsCommand(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "kv-events", "Print what workers (Divisi, vLLM, SGLang) publish of their KV caches");
  command
      ->add_option("--connect", options->connect,
                   "Endpoints that workers publish at, with commas: tcp://HOST:PORT or ipc:///PATH")
      ->delimiter(',')
      ->capture_default_str();
  command
      ->add_option("--replay", options->replay,
                   "Endpoints that answer what was missed, in the order of --connect")
      ->delimiter(',');
  command->add_option("--topic", options->topic,
                      "Only messages whose topic begins so, such as kv@WORKER@");
  command->add_option("--format", options->format, "text or json")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}));
  command->add_option("--batches", options->batches, "End after so many (default: never)");
  command->add_option("--seconds", options->seconds, "End after so long (default: never)");
  command->footer(kFooter);
  command->callback([options] { Watch(*options).Run(); });
}

}  // namespace divisi
