// What one process does with etcd (v3 API, its JSON gateway): it keeps keys of its own alive under
// a lease, and follows the keys of its cluster. A pure state machine: calls to make come out, their
// answers, the watch's lines and time go in. EtcdDirectory (etcd_directory.h) carries it out.
//
//   lease:  grant --> keep alive every third of it --lost, refused--> grant anew, write keys again
//   watch:  list all --> watch from the next revision --ended, compacted, etcd away--> list again
//              watch --nothing heard for two leases--> watch anew from the next revision: a dead
//                                                      connection says nothing, as a quiet one does
//
// Times are durations on this process's clock. When nothing was heard from etcd for two thirds of
// a lease it is taken to be away (kDown), before any lease can have ended unseen.
// Source: etcd 3.4, api/rpc.proto and the gRPC gateway's mapping: keys and values are base64,
// 64-bit numbers are strings, absent is zero.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "divisi/control/directory.h"
#include "divisi/core/json.h"
#include "divisi/core/result.h"
#include "divisi/core/units.h"

namespace divisi {

struct EtcdSessionOptions {
  std::string prefix;   // Of every key here: "/divisi/NAME/"
  std::string watched;  // What is followed, behind the prefix: "" is all.
  Seconds lease{5};     // etcd makes it 2 s at least.
};

// A POST; Answered answers it.
struct EtcdCall {
  uint64_t id = 0;
  std::string path;
  std::string body;
};
// A POST whose answer is a stream of lines; replaces any earlier one. Without a body: none.
struct EtcdWatch {
  uint64_t id = 0;
  std::string body;
};

class EtcdSession {
 public:
  explicit EtcdSession(EtcdSessionOptions options);

  // From now on the key is there while this process lives.
  void Keep(const std::string& key, std::string value);
  // And no longer.
  void Drop(const std::string& key);
  // Writes the key, for an hour at least, unless `absent` or anything that begins with `none_of` is
  // there. Once: whoever asked looks for the key, and asks again.
  void Declare(const std::string& key, const std::string& absent, const std::string& none_of);
  // Every key of this process goes, at once; nothing follows.
  void Leave();

  // Errors: kNotFound where etcd says so.
  void Answered(uint64_t call, const Result<Json>& answer, Seconds now);
  void Watched(uint64_t watch, const Json& line, Seconds now);
  // Whether it was the one that counts. Those that end soon are opened anew after ever longer
  // waits.
  bool WatchEnded(uint64_t watch, Seconds now);
  void Tick(Seconds now);

  std::vector<EtcdCall> TakeCalls();
  std::optional<EtcdWatch> TakeWatch();
  std::vector<DirectoryEvent> TakeEvents();
  // Whether every key that is kept is there, as far as this process knows.
  bool settled() const;
  // Whether Leave has been answered.
  bool left() const { return left_; }

 private:
  enum class Kind { kGrant, kKeepAlive, kRevoke, kPut, kDelete, kList, kDeclareGrant, kDeclare };
  struct Pending {
    Kind kind = Kind::kGrant;
    std::string key;
    std::string value;  // kPut: what was written.
    int64_t lease = 0;  // That it is about
  };
  struct Kept {
    std::string value;
    bool written = false;
  };
  struct Declaration {
    std::string key;
    Json conditions;
  };

  void Call(Pending pending, const char* path, const Json& body);
  bool UnderWay(Kind kind) const;
  bool UnderWay(const std::string& key) const;  // Its put or deletion
  void TickLease(Seconds now);
  void WriteKeys();
  void KeptAlive(const Pending& pending, const Json& answer, Seconds now);
  void Written(const Pending& pending);
  void LoseLease(Seconds now);
  void LoseWatch(Seconds now);
  void On(const Pending& pending, const Json& answer, Seconds now);
  void Failed(const Pending& pending, const Error& error, Seconds now);
  void Granted(const Json& answer, Seconds now);
  void Listed(const Json& answer, Seconds now);
  void DeclareAll(Seconds now);
  void See(const std::string& key, std::optional<std::string> value);
  void SeePut(const Json& kv);
  void Watch(Seconds now);
  std::string Full(const std::string& key) const { return options_.prefix + key; }

  const EtcdSessionOptions options_;
  uint64_t last_id_ = 0;
  std::map<uint64_t, Pending> pending_;
  std::map<std::string, Kept> kept_;
  std::set<std::string> dropping_;
  std::optional<int64_t> lease_;
  Seconds keep_at_, grant_at_{-1e9}, list_at_{-1e9}, write_at_{-1e9};
  Seconds heard_;
  bool up_ = false;
  bool leaving_ = false, left_ = false;
  std::optional<uint64_t> watch_;  // The one that counts
  int64_t revision_ = 0;           // Up to which all is known
  Seconds watch_heard_, watch_since_, watch_wait_;
  // Many deaths share a lease, so that tries which declare none leave none behind.
  std::vector<Declaration> declarations_;
  int64_t declare_lease_ = 0;
  Seconds declare_until_;
  std::map<std::string, std::string> known_;
  std::vector<EtcdCall> calls_;
  std::optional<EtcdWatch> new_watch_;
  std::vector<DirectoryEvent> events_;
};

}  // namespace divisi
