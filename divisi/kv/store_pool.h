// The remote pool of several nodes as one: each key has its nodes, by rendezvous hashing, so that a
// node that comes or goes moves its own share of the keys and no other. With two copies an object
// is put to both, and a get that the first cannot serve goes to the second. A state machine over a
// Transport; control/store_client.h runs it.
//
// Or, directed, of nodes that hold what they hold, other workers' host memory: each get names its
// node, which is connected to while it is asked.
//
// Source: rendezvous (highest random weight) hashing, Thaler and Ravishankar 1998.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "divisi/kv/remote_pages.h"
#include "divisi/kv/store_link.h"

namespace divisi {

// The `copies` nodes of `nodes` (their names) that hold the key, the first choice first.
std::vector<size_t> StoreNodesOf(const BlockKey& key, std::span<const uint64_t> seeds,
                                 size_t copies);
// What StoreNodesOf takes for a name.
uint64_t StoreNodeSeed(std::string_view name);

// As many as a PageDirectory knows holders.
inline constexpr size_t kMostDirected = 256;

struct StorePoolOptions {
  StoreLinkOptions link;
  std::vector<std::string> nodes;  // Their names: control addresses, in any order.
  size_t copies = 1;               // 1 or 2
  bool directed = false;           // Nodes come by NodeFor, and there is nothing but gets of one
  uint64_t seed = 0;               // Of backoffs.
};

class StorePool {
 public:
  struct Output {
    size_t node = 0;
    StoreLink::Output what;
  };

  // memory: registered as `region` with the transport; where gets' objects go. Both outlive this.
  StorePool(const StorePoolOptions& options, Transport& transport, std::span<std::byte> memory,
            const RegionDescriptor& region);

  // As RemotePages says; the deadline is a time, and the numbers are the caller's.
  struct Call {
    StoreCall::Kind kind = StoreCall::Kind::kGet;
    uint64_t number = 0;
    std::vector<BlockKey> keys;
    std::span<std::byte> to;
    std::span<const std::byte> object;
    Seconds deadline;
    std::optional<Bytes> skip;   // Of a get of a part, as large as `to`
    std::optional<size_t> node;  // Directed; none: it fails.
  };
  void Begin(Call call, Seconds now);
  // Directed: the node of that name, which may take the place of one that nobody asks any more;
  // none where kMostDirected are in use.
  std::optional<size_t> NodeFor(const std::string& name);

  void Dialed(size_t node, Result<void> result, Seconds now);
  void Receive(size_t node, std::span<const std::byte> frame, Seconds now);
  void HungUp(size_t node, const std::string& why, Seconds now);
  // Whether anything happened on the transport.
  bool Step(Seconds now);

  std::vector<Output> TakeOutputs();
  std::vector<RemoteDone> TakeDone();
  std::vector<RemoteHealth> health() const;

 private:
  // A caller's call: one call of a link for each node that it is put to or asked of.
  struct Open {
    Call call;
    std::vector<size_t> nodes;  // Of a get: those still to be tried.
    int64_t unended = 0;        // Links' calls
    int64_t unreleased = 0;
    bool told = false;
    RemoteDone done;      // What is known so far
    bool any = false;     // Whether some node has done it,
    bool missed = false;  // or had no such object.
  };
  struct Part {
    uint64_t call = 0;
    std::vector<size_t> places;  // Of a Has: where this node's keys stand in the call's.
  };

  void BeginGet(Open& open, Seconds now);
  void BeginPart(Open& open, size_t node, Part part, Seconds deadline);
  void BeginHas(Open& open);
  bool Usable(size_t node) const { return links_[node]->Usable(); }
  void Take(const RemoteDone& done, Seconds now);
  void Merge(Open& open, const Part& part, const RemoteDone& done) const;
  // Tells the caller what can be told.
  void Tell(Open& open, Seconds now);
  void CheckTime(Seconds now);

  std::unique_ptr<StoreLink> MakeLink(const std::string& node);

  const StorePoolOptions options_;
  StoreTransport transport_;
  const std::span<std::byte> memory_;
  const RegionDescriptor region_;
  std::vector<std::string> names_;
  std::vector<uint64_t> seeds_;
  std::vector<std::unique_ptr<StoreLink>> links_;
  std::map<uint64_t, Open> open_;
  std::map<uint64_t, Part> parts_;  // By links' calls
  uint64_t last_part_ = 0;
  std::vector<RemoteDone> done_;
  Seconds check_at_;
};

}  // namespace divisi
