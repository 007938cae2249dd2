#include "divisi/cli/cluster_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace divisi {
namespace {

using testing::HasSubstr;

Json Status() {
  return Json::Parse(R"({
    "waiting": 1, "live": 2, "queued": 3, "policy": "least-loaded",
    "disaggregate": {"from_tokens": 64, "given": false, "reserve_seconds": 0.001,
                     "step_seconds": 0.002, "transfer_seconds_per_token": 0.003,
                     "work_seconds_per_token": 0.004, "streams": 5},
    "workers": [
      {"id": "a1", "name": "one", "role": "prefill", "state": "draining", "draining": true,
       "drain_left_seconds": 9, "full": false, "requests": 4, "running": null, "held": null,
       "reserved": null, "pages_used": null, "pages_total": null, "prefill_tokens": null,
       "decode_tokens": null, "handovers": null},
      {"id": "b2", "name": "two", "role": "decode", "state": "ready", "draining": false,
       "drain_left_seconds": 0, "full": true, "requests": 0, "running": 1, "held": 2,
       "reserved": 3, "pages_used": 4, "pages_total": 5, "prefill_tokens": 6,
       "decode_tokens": 7, "handovers": 8}]})")
      .value();
}

void Remove(Json& object, const std::string& key) {
  std::erase_if(object.as_object(), [&](const Json::Member& each) { return each.first == key; });
}

TEST(ClusterViewTest, ALineForEachWorkerAndOneOfTheGateway) {
  const auto text = ClusterText(Status());
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_THAT(*text, HasSubstr("4        -        -        -             -"));
  EXPECT_THAT(*text, HasSubstr("  draining, 9 s left\n"));
  EXPECT_THAT(*text, HasSubstr("4/5            6            7          8  ready, full\n"));
  EXPECT_THAT(*text, HasSubstr("2 requests, 1 without a first token, 3 waiting for a worker; "
                               "policy least-loaded\nprompts are handed over from 64 tokens: 4 ms "
                               "a token for each of 5 streams against 1 ms"));
}

TEST(ClusterViewTest, WithoutAThresholdNothingIsSaidOfIt) {
  Json status = Status();
  Remove(status, "disaggregate");
  const auto text = ClusterText(status);
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, testing::EndsWith("policy least-loaded\n"));
}

TEST(ClusterViewTest, SaysWhatIsKnownOfPages) {
  Json status = Status();
  const Json kv = Json::Parse(R"({"pages": {"device": 1, "host": 2, "disk": 3, "remote": 4},
      "events": {"gaps": 5, "replays": 6, "losses": 7, "following": false}})")
                      .value();
  Json workers = *status.Find("workers");
  workers.as_array()[0].Set("kv", kv);
  workers.as_array()[1].Set("kv", Json());
  status.Set("workers", std::move(workers));
  status.Set("directory",
             Json::Parse(R"({"pages": 9, "pool_pages": 8, "refused_pages": 0})").value());
  const auto text = ClusterText(status);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_THAT(*text, testing::EndsWith("kv of one: pages: 1 device, 2 host, 3 disk, 4 remote; "
                                       "events: 5 gaps, 6 replays, 7 losses, not followed now\n"
                                       "directory: 9 pages, 8 of the pool; 0 refused for want of "
                                       "room\n"));
}

TEST(ClusterViewTest, EveryKeyThatIsReadMayBeMissing) {
  const Json whole = Status();
  size_t faults = 0;
  const auto looked_at = [&](const Json& status) {
    faults += ClusterText(status).ok() ? 0 : 1;
    (void)DrainsStill(status, "one");
  };
  for (const auto& [key, value] : whole.as_object()) {
    Json status = whole;
    Remove(status, key);
    looked_at(status);
  }
  const auto of = [](Json& status, bool worker) -> Json& {
    for (auto& [key, value] : status.as_object()) {
      if (key == (worker ? "workers" : "disaggregate")) return worker ? value.as_array()[1] : value;
    }
    return status;
  };
  for (const bool worker : {false, true}) {
    Json pattern = whole;
    for (const auto& [key, value] : of(pattern, worker).as_object()) {
      Json status = whole;
      Remove(of(status, worker), key);
      looked_at(status);
    }
  }
  // All but "disaggregate" itself, and of workers "id", "draining" and this one's time left.
  EXPECT_EQ(faults, 5 + 7 + 13);
}

TEST(ClusterViewTest, FaultsNameTheKey) {
  const auto fails = [](const Json& status, const char* with) {
    const auto text = ClusterText(status);
    ASSERT_FALSE(text);
    EXPECT_EQ(text.error().message, with);
  };
  fails(Json("x"), "workers is missing");
  fails(Json::Parse(R"({"workers": {}})").value(), "workers is object instead of an array");
  fails(Json::Parse(R"({"workers": [3]})").value(), "workers[0].pages_used is missing");
  Json status = Status();
  Json::Array workers = status.Find("workers")->as_array();
  workers[1].Set("held", "2");
  status.Set("workers", workers);
  fails(status, "workers[1].held is string instead of an integer");
}

TEST(ClusterViewTest, WhoDrainsStill) {
  EXPECT_TRUE(*DrainsStill(Status(), "one"));
  EXPECT_TRUE(*DrainsStill(Status(), "a1"));
  EXPECT_FALSE(*DrainsStill(Status(), "two"));
  EXPECT_FALSE(*DrainsStill(Status(), "gone"));
  EXPECT_EQ(DrainsStill(Json::MakeObject(), "one").error().message, "workers is missing");
}

}  // namespace
}  // namespace divisi
