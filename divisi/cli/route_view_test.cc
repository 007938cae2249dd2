#include "divisi/cli/route_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi {
namespace {

using testing::HasSubstr;

Json Answer(const char* routes) {
  return Json::Parse(std::string(R"({"policy": "expected-ttft", "objective": "total",
                                     "quantile": 0.99, "routes": )") +
                     routes + "}")
      .value();
}

constexpr const char* kRoutes = R"([{"request": "a", "attempt": 2, "seconds_ago": 1.25,
  "prompt_tokens": 1000, "candidates": [
  {"way": "apart", "worker": "d1", "prefill": "p1", "chosen": true, "queue_seconds": 0.001,
   "ready_seconds": 0.002, "compute_seconds": 0.003, "ttft_seconds": 0.005,
   "lookup_seconds": 0.0005, "links_seconds": 0.0015, "reading_seconds": 0.004,
   "transfer_seconds": 0.0001, "step_seconds": 0.0002, "cached_tokens": 960, "device_tokens": 480,
   "host_tokens": 0, "disk_tokens": 160, "pool_tokens": 0, "peer_tokens": 320, "peer": "p2",
   "awaited_tokens": 0,
   "present_tokens": 16, "odds": 0.9, "expected_seconds": 0.0061, "work_seconds": 0.01,
   "delay_seconds": 0.04, "cost_seconds": 0.0461, "requests": 3},
  {"way": "whole", "worker": "r1", "prefill": null, "chosen": false, "queue_seconds": 1,
   "ready_seconds": 0, "compute_seconds": 0.1, "ttft_seconds": 1.1, "lookup_seconds": 0,
   "links_seconds": 0, "reading_seconds": 0, "transfer_seconds": 0, "step_seconds": 0,
   "cached_tokens": 0, "device_tokens": 0, "host_tokens": 0, "disk_tokens": 0, "pool_tokens": 0,
   "peer_tokens": 0, "peer": null, "awaited_tokens": 0, "present_tokens": 0, "odds": 1, "expected_seconds": 1.1,
   "work_seconds": 0.1, "delay_seconds": 0, "cost_seconds": 1.1, "requests": 0}]}])";

TEST(RouteViewTest, ShowsEveryCandidateWithItsTerms) {
  EXPECT_EQ(*RoutesText(Answer(kRoutes)),
            "request a, attempt 2, 1.2 s ago: 1000 tokens; policy expected-ttft, objective total, "
            "expected: quantile 0.99\n"
            "  times in ms                 queue Q    ready R  compute C          T   expected"
            "       cost  prefix\n"
            "* p1->d1                         1.00       2.00       3.00       5.00       6.10"
            "      46.10  480 device, 160 disk, 320 peer p2; odds 0.900; reading 4.00 after 2.00; "
            "sending 0.10, step 0.20; 16 there; others 40.00 later\n"
            "  r1                          1000.00       0.00     100.00    1100.00    1100.00"
            "    1100.00  computed\n");
}

TEST(RouteViewTest, WithoutChoicesSaysSo) {
  EXPECT_EQ(*RoutesText(Answer("[]")), "no choices yet\n");
}

TEST(RouteViewTest, NamesWhatIsMissing) {
  EXPECT_THAT(RoutesText(Answer(R"([{"request": "a", "candidates": []}])")).error().message,
              HasSubstr("routes[0].attempt is missing"));
  EXPECT_EQ(RoutesText(Json::MakeObject()).error().code, Code::kUnimplemented);
}

}  // namespace
}  // namespace divisi
