// One worker process of a cluster, without its connections, memory, executor, threads and clock:
// whom it is connected to (Membership) and what it does for them (Worker), joined. A pure state
// machine that a process and the simulation run alike: what came over connections (which are
// numbers), what happened in the directory, writes and steps that are done and the time go in; what
// is to be dialled, sent, written and computed comes out.
//
//   BeNew --> serving --Leave--> draining --idle, time over--> parting --gateways closed--> ended
//     ^          |                  |
//     +--- told that it is dead     +--- told that it is dead --> parting
//
// What comes out is to be done in its order, before the next input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "divisi/control/cluster_message.h"
#include "divisi/control/directory.h"
#include "divisi/control/membership.h"
#include "divisi/control/worker.h"
#include "divisi/core/log.h"
#include "divisi/core/result.h"
#include "divisi/engine/page_news.h"
#include "divisi/engine/tier_driver.h"

namespace divisi {

struct WorkerCoreOptions {
  WorkerRole role = WorkerRole::kReplica;
  std::string name;  // For people
  std::vector<GatewayAddress> gateways;
  Compatibility compatibility;
  SchedulerOptions scheduler;
  Bytes page;               // Of one page of KV
  bool tell_pages = false;  // For TakeNews
  HandoffTimes times;
  Seconds patience{60};  // Without any gateway
};

// How others reach the memory of a worker's pages; an empty address: they do not.
struct PageMemory {
  std::string address;
  std::vector<std::byte> descriptor;
  bool loopback = false;         // This machine alone reaches it.
  std::string exported_at = "";  // HOST:PORT where others read its host memory; empty: they do not
};

using DialAction = Membership::Dial;
// Pages may be written to that peer,
struct AddPeerAction {
  NodeId node;
  PageMemory memory;
};
// and it is to be barred for good: Barred answers, once none of its writes lands any more.
struct BarAction {
  NodeId node;
};
struct LogAction {
  LogLevel level = LogLevel::kInfo;
  const char* event = "";
  Json::Object fields;
};
// Connected or Ended answers a dial, WriteDone a write.
using WorkerAction = std::variant<DialAction, SendAction, AddPeerAction, BarAction, PageWrite,
                                  DirectoryAction, LogAction>;

// What the process is to do besides.
struct WorkerFate {
  enum class Kind {
    kGoesOn,
    kBeginsAnew,  // It was declared dead: its connections are to end, and BeNew.
    kEnds,
  };
  Kind kind = Kind::kGoesOn;
  std::string why;   // kBeginsAnew
  Result<void> end;  // kEnds
};

class WorkerCore {
 public:
  WorkerCore(WorkerCoreOptions options, Seconds now);
  ~WorkerCore();

  // A new life, also the first: nothing of the old one is known any more, no answer to its actions
  // is to come, and none of its plans is read.
  // tiers: below its device, if there are any; options.scheduler reports pages then.
  // events: where the process publishes what it holds.
  void BeNew(NodeId self, PageMemory memory, std::optional<PrefixLoaderOptions> tiers = {},
             EventEndpoints events = {});

  // ---- The world
  // same_machine: of the gateway and this process.
  void Connected(LinkId link, bool same_machine);
  void Ended(LinkId link, const std::string& why, Seconds now);
  void Receive(LinkId link, ClusterMessage message, Seconds now);
  // Of gateways' keys (member_keys.h); others change nothing.
  void Told(const DirectoryEvent& event);
  // As of Worker.
  void WriteDone(uint64_t write, bool ok, Seconds now);
  void Barred(NodeId peer, Seconds now);
  // What its tiers moved, for the next report.
  void ShowTiers(const TierDriverStats& tiers) { tiers_ = tiers; }
  void Tick(Seconds now);
  // Tick is to be called within this.
  Seconds UntilTick(Seconds now) const;

  // ---- Steps. Null: there is nothing to compute, or a step runs. The plan is there until EndStep.
  const StepPlan* BeginStep(Seconds now);
  void EndStep(std::vector<SliceResult> results, Seconds now);

  // It wants no new requests, and ends when it has none, `drain` later at the latest. Once; again
  // nothing happens.
  void Leave(Seconds drain, Seconds now);
  // Errors of kEnds: kUnavailable when no gateway was heard for `patience`; kInvalidArgument when
  // one refuses this worker (another model, say), with its reason, or where only this machine
  // reaches the page memory and the gateway is on another.
  WorkerFate Fate(Seconds now) const;

  std::vector<WorkerAction> TakeActions();
  // What this life holds, to be published where its `events` say: the next `most` events. Without
  // options.tell_pages there is nothing, and nothing waits.
  std::vector<KvEvent> TakeNews(size_t most);
  PageNewsStats news() const { return news_.stats(); }

  NodeId self() const { return self_; }
  const WorkerCoreOptions& options() const { return options_; }
  const Worker& worker() const { return *worker_; }
  // As of Worker; null without tiers.
  PrefixLoader* prefixes() { return worker_->prefixes(); }

 private:
  HelloMessage Hello() const;
  void On(LinkId link, RelayMessage& relay, Seconds now);
  void On(LinkId link, WelcomeMessage& welcome, Seconds now);
  void On(LinkId link, RejectMessage& reject, Seconds now);
  void On(LinkId link, PeerUpMessage& up, Seconds now);
  void On(LinkId link, PeerGoneMessage& lost, Seconds now);
  template <typename Other>
  void On(LinkId, Other&, Seconds) {}  // Pings, and what is for gateways

  bool Idle() const;
  void Part(Seconds now);
  ReportMessage MakeReport();
  void Report(Seconds now);
  void Send(LinkId link, ClusterMessage message);
  void TellAll(const ClusterMessage& message);
  void Log(LogLevel level, const char* event, Json::Object fields);
  void GatherNews();
  // Turns what the worker asks for into actions, after every input.
  void Settle();

  const WorkerCoreOptions options_;
  Membership membership_;
  std::map<std::string, GatewayAddress> announced_at_;  // By key
  std::optional<Seconds> drain_;                        // Once it leaves
  Seconds leave_at_;
  std::optional<Seconds> parts_until_;
  std::optional<Error> failure_;
  Seconds last_report_;
  std::optional<TierDriverStats> tiers_;
  int64_t most_used_ = 0;  // Of kv_pages_used: what a late load takes back does not let it fall.

  // Of this life
  NodeId self_;
  PageMemory memory_;
  EventEndpoints events_;
  bool pool_ = false;
  bool reads_peers_ = false;
  int layers_ = 1;
  PageNews news_;
  std::unique_ptr<Worker> worker_;
  bool stepping_ = false;
  std::optional<std::string> dead_;  // Why, once it was told so
  std::vector<WorkerAction> actions_;
};

}  // namespace divisi
