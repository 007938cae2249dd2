#include "divisi/serve/http_parser.h"

#include <gtest/gtest.h>

#include "divisi/core/random.h"

namespace divisi {
namespace {

using State = HttpParser::State;

const std::string kTwo =
    "POST /a?b=c HTTP/1.1\r\nHost: x\r\nX-One:  1 \r\nContent-Length: 5\r\n\r\nhello"
    "GET /next HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";

TEST(HttpParser, TakesOneRequestAndLeavesTheNext) {
  BodyBudget bodies(0);
  HttpParser parser({}, bodies);
  const size_t taken = parser.Push(kTwo);
  ASSERT_EQ(parser.state(), State::kDone);
  const auto first = parser.Take();
  EXPECT_EQ(first.request.method, "POST");
  EXPECT_EQ(first.request.Path(), "/a");
  EXPECT_EQ(first.request.Header("x-ONE"), "1");
  EXPECT_EQ(first.request.Header("absent"), "");
  EXPECT_EQ(first.request.body, "hello");
  EXPECT_TRUE(first.keep_alive);
  EXPECT_EQ(taken + parser.Push(kTwo.substr(taken)), kTwo.size());
  const auto second = parser.Take();
  EXPECT_EQ(second.request.target, "/next");
  EXPECT_TRUE(second.http_1_0);
  EXPECT_TRUE(second.keep_alive);
}

TEST(HttpParser, AnyCutOfTheBytesGivesTheSameRequests) {
  const std::string bytes =
      kTwo +
      "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n10;x=y\r\n" +
      std::string(16, 'z') + "\r\n0\r\nTrailer: t\r\n\r\n" + kTwo;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    BodyBudget budget(0);
    HttpParser parser({}, budget);
    std::string input;
    std::vector<std::string> bodies;
    for (size_t at = 0; at < bytes.size();) {
      const size_t count = std::min(bytes.size() - at, static_cast<size_t>(random.Between(1, 60)));
      input += bytes.substr(at, count);
      at += count;
      while (true) {
        const size_t taken = parser.Push(input);
        input.erase(0, taken);
        ASSERT_NE(parser.state(), State::kFailed) << "seed " << seed;
        if (parser.state() != State::kDone) break;
        bodies.push_back(parser.Take().request.body);
      }
    }
    ASSERT_EQ(bodies,
              (std::vector<std::string>{"hello", "", "abc" + std::string(16, 'z'), "hello", ""}))
        << "seed " << seed;
  }
}

int StatusOf(const std::string& bytes, HttpParser::Options options = {}) {
  BodyBudget bodies(1 << 20);
  HttpParser parser(options, bodies);
  parser.Push(bytes);
  return parser.state() == State::kFailed ? parser.error_response().status : 0;
}

TEST(HttpParser, RefusesWhatIsNotHttp) {
  EXPECT_EQ(StatusOf("GET / HTTP/2.0\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\nHost: x\r\nA B: c\r\n\r\n"), 400);
  EXPECT_EQ(
      StatusOf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"),
      400);
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"),
            400);
  // Both at once is how requests are smuggled past a proxy (RFC 9112, section 6.1).
  EXPECT_EQ(
      StatusOf(
          "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"),
      400);
}

TEST(HttpParser, RefusesABodyWhoseEndReadersMaySeeDifferently) {
  const auto status = [](const std::string& framing) {
    return StatusOf("POST / HTTP/1.1\r\nHost: x\r\n" + framing +
                    "\r\n0\r\n\r\nGET /version HTTP/1.1\r\nHost: x\r\n\r\n");
  };
  EXPECT_EQ(status("Transfer-Encoding: chunked\r\n"), 0);
  EXPECT_EQ(status("transfer-encoding:  CHUNKED \r\n"), 0);
  for (const std::string coding : {"gzip", "chunked, gzip", "gzip, chunked", "chunked, chunked",
                                   "xchunked", "identity", "", "\"chunked\"", "chunked;x=y"}) {
    EXPECT_EQ(status("Transfer-Encoding: " + coding + "\r\n"), 400) << coding;
    EXPECT_EQ(status("Content-Length: 5\r\nTransfer-Encoding: " + coding + "\r\n"), 400) << coding;
    EXPECT_EQ(status("Transfer-Encoding: " + coding + "\r\nContent-Length: 5\r\n"), 400) << coding;
    EXPECT_EQ(status("Transfer-Encoding: " + coding + "\r\nTransfer-Encoding: chunked\r\n"), 400)
        << coding;
    EXPECT_EQ(status("Transfer-Encoding: chunked\r\nTransfer-Encoding: " + coding + "\r\n"), 400)
        << coding;
  }
  for (const std::string length : {"5\r\nContent-Length: 6", "5, 6", "+5", "-1", "0x5", ""}) {
    EXPECT_EQ(status("Content-Length: " + length + "\r\n"), 400) << length;
  }
  EXPECT_EQ(StatusOf("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
}

TEST(HttpParser, WantsOneHostFromHttp11) {
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\nHost:\r\n\r\n"), 0);
  EXPECT_EQ(StatusOf("GET / HTTP/1.0\r\n\r\n"), 0);
}

TEST(HttpParser, KeepsToItsBounds) {
  const HttpParser::Options options{.max_head_bytes = 200, .max_body_bytes = 10};
  EXPECT_EQ(StatusOf("GET /" + std::string(300, 'x') + " HTTP/1.1\r\n\r\n", options), 431);
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\nA: " + std::string(300, 'x'), options), 431);
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n", options), 413);
  EXPECT_EQ(
      StatusOf(
          "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n01234567890\r\n",
          options),
      413);
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789", options),
            0);
}

TEST(HttpParser, BodiesShareABudgetUntilTheyGo) {
  BodyBudget bodies(100'000);
  const auto post = [](size_t size) {
    return "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(size) + "\r\n\r\n" +
           std::string(size, 'x');
  };
  const std::string chunked =
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nEA60\r\n" +
      std::string(60'000, 'x');
  HttpParser first({}, bodies);
  first.Push(post(60'000).substr(0, 50'000));
  EXPECT_EQ(first.state(), State::kBody);
  EXPECT_GT(bodies.used(), 49'000u);
  for (const std::string& more : {post(60'000), chunked}) {
    HttpParser second({}, bodies);
    const size_t before = bodies.used();
    for (size_t at = 0; at < more.size(); at += 8192) second.Push(more.substr(at, 8192));
    ASSERT_EQ(second.state(), State::kFailed);
    EXPECT_EQ(second.error_response().status, 503);
    EXPECT_EQ(bodies.used(), before) << "a refused body is still counted";
  }
  {
    HttpParser small({}, bodies);
    small.Push(post(HttpParser::kUncountedBytes));
    EXPECT_EQ(small.state(), State::kDone);
  }
  first.Push(std::string(60'000, 'x'));
  ASSERT_EQ(first.state(), State::kDone);
  {
    const HttpRequest request = first.Take().request;
    EXPECT_EQ(bodies.used(), 60'000u);
    first.Push(post(50'000));
    EXPECT_EQ(first.state(), State::kFailed);
  }
  EXPECT_EQ(bodies.used(), 0u);
}

TEST(HttpParser, KnowsWhoWaitsForContinue) {
  BodyBudget bodies(0);
  HttpParser parser({}, bodies);
  parser.Push("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\nContent-Length: 5\r\n\r\n");
  EXPECT_EQ(parser.state(), State::kBody);
  EXPECT_TRUE(parser.expects_continue());
}

}  // namespace
}  // namespace divisi
