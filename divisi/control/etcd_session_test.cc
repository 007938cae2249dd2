#include "divisi/control/etcd_session.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "divisi/control/etcd_json.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

constexpr char kPrefix[] = "/divisi/c/";

// etcd as far as the session knows it, on a virtual clock: keys under leases, and one watch.
class FakeEtcd {
 public:
  Result<Json> Answer(const EtcdCall& call, Seconds now) {
    Expire(now);
    const Json body = *Json::Parse(call.body);
    if (call.path == "/v3/lease/grant") {
      leases_[++last_lease_] = {now + Seconds(static_cast<double>(EtcdNumber(body, "TTL"))),
                                EtcdNumber(body, "TTL")};
      return Json(Json::Object{{"ID", Format("{}", last_lease_)}});
    }
    if (call.path == "/v3/lease/keepalive") return KeepAlive(EtcdNumber(body, "ID"), now);
    if (call.path == "/v3/lease/revoke") {
      leases_[EtcdNumber(body, "ID")].first = now;
      Expire(now);
      return Json::MakeObject();
    }
    if (call.path == "/v3/kv/put") return Put(body);
    if (call.path == "/v3/kv/deleterange") {
      Delete(EtcdBytes(body, "key"));
      return Json::MakeObject();
    }
    if (call.path == "/v3/kv/range") return Range(body);
    return Transaction(body);
  }

  // What has happened since the revision that is asked for is told again.
  void Watch(const EtcdWatch& watch) {
    watch_ = watch;
    ++watches_;
    if (watch.body.empty()) return;
    const Json body = *Json::Parse(watch.body);
    lines_.clear();
    for (const auto& [revision, line] : history_) {
      if (revision >= EtcdNumber(*body.Find("create_request"), "start_revision"))
        lines_.push_back(line);
    }
  }
  const EtcdWatch& watch() const { return watch_; }
  int watches() const { return watches_; }
  std::vector<Json> TakeLines() { return std::exchange(lines_, {}); }
  size_t leases() const { return leases_.size(); }

  void Expire(Seconds now) {
    std::vector<std::string> dead;
    for (const auto& [key, entry] : keys_) {
      const auto lease = leases_.find(entry.second);
      if (lease != leases_.end() && lease->second.first <= now) dead.push_back(key);
    }
    for (const std::string& key : dead) Delete(key);
    std::erase_if(leases_, [&](const auto& lease) { return lease.second.first <= now; });
  }

  bool Has(const std::string& key) const { return keys_.contains(kPrefix + key); }
  void Set(const std::string& key, const std::string& value) {
    keys_[kPrefix + key] = {value, 0};
    Tell(kPrefix + key, &value);
  }
  void Delete(const std::string& full) {
    if (keys_.erase(full) > 0) Tell(full, nullptr);
  }

 private:
  Result<Json> KeepAlive(int64_t id, Seconds now) {
    Json result = Json(Json::Object{{"ID", Format("{}", id)}});
    if (const auto lease = leases_.find(id); lease != leases_.end()) {
      lease->second.first = now + Seconds(static_cast<double>(lease->second.second));
      result.Set("TTL", Format("{}", lease->second.second));
    }
    return Json(Json::Object{{"result", result}});
  }

  Result<Json> Put(const Json& body) {
    const int64_t lease = EtcdNumber(body, "lease");
    if (lease != 0 && !leases_.contains(lease)) {
      return Error{Code::kNotFound, "etcdserver: requested lease not found"};
    }
    const std::string value = EtcdBytes(body, "value");
    keys_[EtcdBytes(body, "key")] = {value, lease};
    Tell(EtcdBytes(body, "key"), &value);
    return Json::MakeObject();
  }

  Result<Json> Range(const Json& body) {
    Json kvs = Json::MakeArray();
    for (const auto& [key, entry] : keys_) {
      if (key < EtcdBytes(body, "key") || key >= EtcdBytes(body, "range_end")) continue;
      kvs.Append(Json(Json::Object{{"key", Base64(key)},
                                   {"value", Base64(entry.first)},
                                   {"lease", Format("{}", entry.second)}}));
    }
    return Json(Json::Object{{"header", Json::Object{{"revision", Format("{}", revision_)}}},
                             {"kvs", kvs}});
  }

  Result<Json> Transaction(const Json& body) {
    for (const Json& compare : body.Find("compare")->as_array()) {
      const std::string key = EtcdBytes(compare, "key");
      const std::string end = EtcdBytes(compare, "range_end");
      for (const auto& [there, entry] : keys_) {
        if (end.empty() ? there == key : there >= key && there < end) return Json::MakeObject();
      }
    }
    if (const auto put = Put(*body.Find("success")->as_array()[0].Find("request_put")); !put)
      return put;
    return Json(Json::Object{{"succeeded", true}});
  }

  void Tell(const std::string& key, const std::string* value) {
    Json kv = Json(Json::Object{{"key", Base64(key)}});
    kv.Set("mod_revision", Format("{}", ++revision_));
    if (value != nullptr) {
      kv.Set("value", Base64(*value));
      kv.Set("lease", Format("{}", keys_.at(key).second));
    }
    Json event = Json(Json::Object{{"kv", kv}});
    if (value == nullptr) event.Set("type", "DELETE");
    history_.emplace(revision_,
                     Json(Json::Object{{"result", Json::Object{{"events", Json::Array{event}}}}}));
    lines_.push_back(history_.at(revision_));
  }

  std::map<int64_t, std::pair<Seconds, int64_t>> leases_;  // Until when, of how long
  std::map<std::string, std::pair<std::string, int64_t>> keys_;
  int64_t last_lease_ = 100, revision_ = 7;
  EtcdWatch watch_;
  int watches_ = 0;
  std::map<int64_t, Json> history_;  // What was told of each revision
  std::vector<Json> lines_;
};

class EtcdSessionTest : public testing::Test {
 protected:
  // Runs session and etcd for a while; events are added up.
  void Run(double seconds) {
    for (const Seconds end = now_ + Seconds(seconds); now_ < end; now_ += Seconds(0.1)) {
      session_.Tick(now_);
      Exchange();
      if (!away_) etcd_.Expire(now_);
    }
  }

  void Exchange() {
    for (bool busy = true; busy;) {
      busy = false;
      for (const EtcdCall& call : session_.TakeCalls()) {
        busy = true;
        session_.Answered(
            call.id,
            away_ ? Result<Json>(Error{Code::kUnavailable, "no answer"}) : etcd_.Answer(call, now_),
            now_);
      }
      if (const auto watch = session_.TakeWatch()) etcd_.Watch(*watch);
      if (away_) continue;
      for (const Json& line : etcd_.TakeLines()) {
        if (!etcd_.watch().body.empty()) session_.Watched(etcd_.watch().id, line, now_);
      }
    }
    for (const DirectoryEvent& event : session_.TakeEvents()) events_.push_back(event);
  }

  // What it asks of etcd about its keys now, or by that path, not yet answered; all else is.
  std::vector<EtcdCall> Held(const std::string& path = "") {
    session_.Tick(now_);
    std::vector<EtcdCall> held;
    for (EtcdCall& call : session_.TakeCalls()) {
      const bool keys = call.path == "/v3/kv/put" || call.path == "/v3/kv/deleterange";
      if (path.empty() ? keys : call.path == path) {
        held.push_back(std::move(call));
      } else {
        session_.Answered(call.id, etcd_.Answer(call, now_), now_);
      }
    }
    return held;
  }

  // "+key=value", "-key", "up", "down"
  std::string Events() {
    std::string text;
    for (const DirectoryEvent& event : std::exchange(events_, {})) {
      switch (event.kind) {
        case DirectoryEvent::Kind::kPut:
          text += "+" + event.key + "=" + event.value + " ";
          break;
        case DirectoryEvent::Kind::kGone:
          text += "-" + event.key + " ";
          break;
        case DirectoryEvent::Kind::kUp:
          text += "up ";
          break;
        case DirectoryEvent::Kind::kDown:
          text += "down ";
          break;
      }
    }
    return text;
  }

  EtcdSession session_{{.prefix = kPrefix, .watched = "", .lease = Seconds(5)}};
  FakeEtcd etcd_;
  bool away_ = false;
  Seconds now_{1000};
  std::vector<DirectoryEvent> events_;
};

TEST_F(EtcdSessionTest, KeepsItsKeysAndSeesThoseOfOthers) {
  etcd_.Set("gateway/1", "a");
  etcd_.TakeLines();
  session_.Keep("worker/2", "b");
  Run(1);
  EXPECT_EQ(Events(), "+gateway/1=a up +worker/2=b ");
  EXPECT_TRUE(session_.settled());
  etcd_.Set("gateway/3", "c");
  etcd_.Delete(std::string(kPrefix) + "gateway/1");
  Run(60);  // Many leases
  EXPECT_EQ(Events(), "+gateway/3=c -gateway/1 ");
  EXPECT_TRUE(etcd_.Has("worker/2"));
}

TEST_F(EtcdSessionTest, AShortAbsenceIsNoneAtAll) {
  session_.Keep("worker/2", "b");
  Run(1);
  Events();
  away_ = true;
  Run(1.5);
  away_ = false;
  Run(10);
  EXPECT_EQ(Events(), "");
  EXPECT_TRUE(etcd_.Has("worker/2"));
}

TEST_F(EtcdSessionTest, AfterAnAbsenceBeyondTheLeaseItsKeysComeBack) {
  session_.Keep("worker/2", "b");
  etcd_.Set("gateway/1", "a");
  Run(1);
  Events();
  away_ = true;
  Run(12);
  EXPECT_EQ(Events(), "down ");
  etcd_.Expire(now_);
  EXPECT_FALSE(etcd_.Has("worker/2"));
  etcd_.Delete(std::string(kPrefix) + "gateway/1");
  etcd_.Set("gateway/9", "n");
  etcd_.TakeLines();  // The watch was gone.
  away_ = false;
  Run(1);
  const std::string events = Events();
  EXPECT_NE(events.find("-gateway/1 "), std::string::npos) << events;
  EXPECT_NE(events.find("+gateway/9=n "), std::string::npos) << events;
  EXPECT_NE(events.find("up "), std::string::npos) << events;
  EXPECT_TRUE(etcd_.Has("worker/2"));
  EXPECT_TRUE(session_.settled());
}

TEST_F(EtcdSessionTest, ALostLeaseIsTakenAnewAndTheKeysWithIt) {
  session_.Keep("worker/2", "b");
  Run(1);
  etcd_.Expire(now_ + Seconds(100));  // The lease is gone, and etcd is there.
  EXPECT_FALSE(etcd_.Has("worker/2"));
  Run(3);
  EXPECT_TRUE(etcd_.Has("worker/2"));
}

TEST_F(EtcdSessionTest, ACompactedOrEndedWatchListsAgain) {
  Run(1);
  Events();
  etcd_.Set("gateway/1", "a");
  etcd_.TakeLines();  // Never told
  session_.Watched(etcd_.watch().id, *Json::Parse(R"({"result":{"canceled":true}})"), now_);
  Run(1);
  EXPECT_EQ(Events(), "+gateway/1=a ");
  etcd_.Delete(std::string(kPrefix) + "gateway/1");
  etcd_.TakeLines();
  session_.WatchEnded(etcd_.watch().id, now_);
  Run(1);
  EXPECT_EQ(Events(), "-gateway/1 ");
}

TEST_F(EtcdSessionTest, AWatchThatEndsAgainAndAgainIsOpenedAfterEverLongerWaits) {
  Run(5);
  const auto opened_within = [&](double seconds) {
    EXPECT_TRUE(session_.WatchEnded(etcd_.watch().id, now_));
    EXPECT_FALSE(session_.WatchEnded(etcd_.watch().id, now_)) << "it counts no more";
    const int before = etcd_.watches();
    Run(seconds);
    return etcd_.watches() - before;
  };
  EXPECT_EQ(opened_within(0.5), 1);
  EXPECT_EQ(opened_within(0.5), 0);
  Run(0.3);
  EXPECT_EQ(opened_within(1), 0);
  Run(5);  // One that lasts
  EXPECT_EQ(opened_within(0.5), 1);
}

TEST_F(EtcdSessionTest, DroppedKeysGoAndLeavingTakesAll) {
  session_.Keep("reach/1/2", "");
  session_.Keep("gateway/2", "g");
  Run(1);
  session_.Drop("reach/1/2");
  Run(0.2);
  EXPECT_FALSE(etcd_.Has("reach/1/2"));
  session_.Keep("reach/1/2", "");
  session_.Drop("reach/1/2");
  Run(0.2);
  EXPECT_FALSE(etcd_.Has("reach/1/2"));
  session_.Leave();
  Exchange();
  EXPECT_TRUE(session_.left());
  EXPECT_FALSE(etcd_.Has("gateway/2"));
}

TEST_F(EtcdSessionTest, ADeathIsDeclaredOnlyOfWhoHasNoLeaseAndIsReachedByNobody) {
  Run(1);
  etcd_.Set("worker/1", "w");
  session_.Declare("dead/1", "worker/1", "reach/1/");
  Run(0.2);
  EXPECT_FALSE(etcd_.Has("dead/1"));
  etcd_.Delete(std::string(kPrefix) + "worker/1");
  etcd_.Set("reach/1/77", "");
  session_.Declare("dead/1", "worker/1", "reach/1/");
  Run(0.2);
  EXPECT_FALSE(etcd_.Has("dead/1"));
  etcd_.Delete(std::string(kPrefix) + "reach/1/77");
  session_.Declare("dead/1", "worker/1", "reach/1/");
  Run(0.2);
  EXPECT_TRUE(etcd_.Has("dead/1"));
  EXPECT_NE(Events().find("+dead/1="), std::string::npos);
}

// One asks each second as long as the death is not declared: a lease for each would be 3600 alive.
TEST_F(EtcdSessionTest, DeathsThatAreNotDeclaredLeaveNoLeasesBehind) {
  Run(1);
  etcd_.Set("worker/1", "w");
  const size_t before = etcd_.leases();
  for (int i = 0; i < 20; ++i) {
    session_.Declare("dead/1", "worker/1", "reach/1/");
    Run(1);
  }
  EXPECT_FALSE(etcd_.Has("dead/1"));
  EXPECT_LE(etcd_.leases(), before + 1);
  etcd_.Delete(std::string(kPrefix) + "worker/1");
  Run(3500);  // The lease of the first try still has an hour
  session_.Declare("dead/1", "worker/1", "reach/1/");
  Run(3590);
  EXPECT_TRUE(etcd_.Has("dead/1"));
  session_.Declare("dead/2", "worker/2", "reach/2/");
  Run(1);
  EXPECT_TRUE(etcd_.Has("dead/2"));
  Run(3500);
  EXPECT_FALSE(etcd_.Has("dead/1"));
  EXPECT_TRUE(etcd_.Has("dead/2"));
}

// The next lease is asked for when the old one has an hour left: nothing is declared under it in
// between, however long the answer takes.
TEST_F(EtcdSessionTest, ADeathWaitsForTheNextLeaseWhoseAnswerIsLate) {
  Run(1);
  session_.Declare("dead/1", "worker/1", "reach/1/");
  Run(3700);
  ASSERT_TRUE(etcd_.Has("dead/1"));
  session_.Declare("dead/2", "worker/2", "reach/2/");
  const auto grants = Held("/v3/lease/grant");
  ASSERT_EQ(grants.size(), 1);
  session_.Declare("dead/3", "worker/3", "reach/3/");
  Run(1);
  EXPECT_FALSE(etcd_.Has("dead/3"));
  session_.Answered(grants[0].id, etcd_.Answer(grants[0], now_), now_);
  Run(3550);
  EXPECT_FALSE(etcd_.Has("dead/1"));
  EXPECT_TRUE(etcd_.Has("dead/2"));
  EXPECT_TRUE(etcd_.Has("dead/3"));
}

TEST_F(EtcdSessionTest, ADeathIsDeclaredThoughEtcdHasLostTheLeaseForIt) {
  Run(1);
  session_.Declare("dead/1", "worker/1", "reach/1/");
  Run(1);
  etcd_.Expire(now_ + Seconds(8000));  // All leases, as where etcd was set up anew.
  session_.Declare("dead/2", "worker/2", "reach/2/");
  Run(1);
  session_.Declare("dead/2", "worker/2", "reach/2/");
  Run(1);
  EXPECT_TRUE(etcd_.Has("dead/2"));
}

// etcd does what it was asked for, or not, and the answer is lost either way.
TEST_F(EtcdSessionTest, AKeyThatIsDroppedWhileItsPutFailsGoes) {
  for (const bool done : {false, true}) {
    session_.Keep("gateway/2", "g");
    Run(1);
    session_.Keep("reach/1/2", "");
    const auto calls = Held();
    ASSERT_EQ(calls.size(), 1);
    session_.Drop("reach/1/2");
    EXPECT_TRUE(Held().empty());  // Not before it is known how the put ended.
    if (done) (void)etcd_.Answer(calls[0], now_);
    session_.Answered(calls[0].id, Error{Code::kUnavailable, "no answer"}, now_);
    Run(1);
    EXPECT_FALSE(etcd_.Has("reach/1/2"));
    // And one that etcd does only then.
    (void)etcd_.Answer(calls[0], now_);
    EXPECT_TRUE(etcd_.Has("reach/1/2"));
    Run(1);
    EXPECT_FALSE(etcd_.Has("reach/1/2"));
    EXPECT_TRUE(etcd_.Has("gateway/2"));
  }
}

// Two calls that are under way are done in either order.
TEST_F(EtcdSessionTest, AKeyThatIsKeptAgainIsWrittenAfterItsDeletion) {
  session_.Keep("reach/1/2", "");
  Run(1);
  session_.Drop("reach/1/2");
  const auto deletion = Held();
  ASSERT_EQ(deletion.size(), 1);
  session_.Keep("reach/1/2", "");
  EXPECT_TRUE(Held().empty());
  session_.Answered(deletion[0].id, etcd_.Answer(deletion[0], now_), now_);
  Run(1);
  EXPECT_TRUE(etcd_.Has("reach/1/2"));
  EXPECT_TRUE(session_.settled());
}

// A dead connection looks like a quiet one.
TEST_F(EtcdSessionTest, AWatchThatSaysNothingIsOpenedAnewWhereItWas) {
  etcd_.Set("gateway/1", "a");
  Run(1);
  Events();
  etcd_.Set("gateway/3", "c");
  Run(1);
  EXPECT_EQ(Events(), "+gateway/3=c ");
  const int watches = etcd_.watches();
  etcd_.Set("gateway/4", "d");
  etcd_.Delete(std::string(kPrefix) + "gateway/1");
  etcd_.TakeLines();  // Its end of the connection is gone.
  Run(7);
  EXPECT_EQ(Events(), "");
  Run(4);
  EXPECT_EQ(Events(), "+gateway/4=d -gateway/1 ");
  EXPECT_EQ(etcd_.watches(), watches + 1);
}

TEST_F(EtcdSessionTest, AnswersThatAreNoneChangeNothing) {
  session_.Keep("worker/2", "b");
  for (int i = 0; i < 50; ++i) {
    session_.Tick(now_);
    now_ += Seconds(0.5);
    for (const EtcdCall& call : session_.TakeCalls()) {
      session_.Answered(call.id, *Json::Parse(R"({"ID":{},"kvs":[1,{"key":7}],"header":3})"), now_);
    }
    if (const auto watch = session_.TakeWatch()) {
      session_.Watched(watch->id, *Json::Parse(R"({"result":{"events":[2,{"kv":[]}]}})"), now_);
      session_.Watched(watch->id, *Json::Parse("[]"), now_);
    }
  }
  EXPECT_FALSE(session_.settled());
  Run(2);
  EXPECT_TRUE(etcd_.Has("worker/2"));
}

TEST(EtcdJsonTest, Base64GoesBothWays) {
  for (const std::string text : {"", "f", "fo", "foo", "foob", "fooba", "foobar"}) {
    EXPECT_EQ(FromBase64(Base64(text)), text);
  }
  EXPECT_EQ(Base64("foob"), "Zm9vYg==");  // RFC 4648, section 10
  EXPECT_EQ(FromBase64("a*b"), std::nullopt);
  EXPECT_EQ(RangeEnd("a/"), "a0");
}

}  // namespace
}  // namespace divisi
