// Bytes of a connection to requests: HTTP/1.0 and 1.1, with bounds on head and body. No sockets.
// Beast's parser does the work; http_parser.cc includes it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "divisi/serve/http.h"

namespace divisi {

class HttpParser {
 public:
  // Each connection may hold this much of a head anyway, so it may as well of a body: then clients
  // with large bodies do not shut out those with ordinary ones.
  static constexpr size_t kUncountedBytes = 16 << 10;

  struct Options {
    size_t max_head_bytes = 16 << 10;  // Request line and headers.
    size_t max_body_bytes = 8 << 20;
  };
  // Bodies beyond kUncountedBytes grow by leave of `budget`, which outlives this.
  HttpParser(Options options, BodyBudget& budget);
  ~HttpParser();

  enum class State {
    kHead,     // Needs more bytes for the head.
    kBody,     // The head is complete; needs more bytes for the body.
    kDone,     // A request is complete: Take() it.
    kFailed,   // error_response() says why; nothing can follow on this connection.
  };
  // Takes what it can of `bytes`, at most one request, and says how much that was. The rest must
  // come again, with more bytes behind it.
  size_t Push(std::string_view bytes);
  State state() const;

  // The client waits for "100 Continue" before it sends the body. Meaningful in kBody.
  bool expects_continue() const;

  struct Taken {
    HttpRequest request;
    bool keep_alive = true;   // What the client's version and Connection header ask for.
    bool http_1_0 = false;    // No chunked responses.
  };
  // Requires: kDone. The next request begins.
  Taken Take();

  // 400, 413, 431, or 503 where the budget is used up, with a JSON body. Requires: kFailed; what
  // had come of the request is gone then.
  HttpResponse error_response() const;

 private:
  struct Beast;
  std::unique_ptr<Beast> beast_;
};

}  // namespace divisi
