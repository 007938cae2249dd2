// The HTTP/1.1 server: sockets, timeouts and bounds around a handler. Boost.Asio moves the bytes;
// http_server.cc and http_connection.cc include it.
//
// One strand per connection over a few I/O threads. Every wait has a deadline and every buffer a
// bound; what passes one is answered where that is possible, and closed.
//  - While an answer is made, the socket is still read, so a client that goes away is noticed at
//    once, also when nothing is being written. A client that closes its sending side counts as
//    gone: from here the two look the same, and no client of this API does it.
//  - Pipelined requests are answered in order, one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "divisi/core/result.h"
#include "divisi/core/units.h"
#include "divisi/serve/http.h"
#include "divisi/serve/http_parser.h"

namespace divisi {

// What clients leave of the descriptors that the system lets the process have.
inline constexpr int kSparedDescriptors = 128;

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // An address to listen on, or a name that resolves to one.
  int port = 0;                    // 0: any free one.
  int threads = 1;
  // Beyond it: 503 with Retry-After, and closed. Never so many that the process lacks descriptors
  // for its files and peers (kSparedDescriptors).
  int max_connections = 4096;
  HttpParser::Options parser;
  // Of all bodies that come in or wait to be parsed and tokenised, beside the small ones
  // (HttpParser::kUncountedBytes): 32 of the largest. Beyond it: 503 with Retry-After, and closed.
  size_t max_body_bytes_together = 256 << 20;
  size_t max_pipelined_bytes = 64 << 10;  // Read ahead of the request being answered.
  size_t max_buffered_bytes = 1 << 20;    // Of a stream, unsent: beyond it the client is too slow.
  int send_buffer_bytes = 0;              // The kernel's, per connection; 0: as the system says.
  Seconds idle_timeout{75};   // From the end of an answer, or the accept, to a complete head.
  Seconds body_timeout{60};   // From the head to the end of the body.
  Seconds write_timeout{30};  // Without a byte taken by the client while some wait for it.
};

class HttpServer {
 public:
  // Listens and begins to serve. handler outlives this.
  // Errors: kInvalidArgument for a host that does not resolve; kUnavailable when the port is taken
  // or not allowed; kInternal for what else the system reports.
  static Result<HttpServer> Start(const HttpServerOptions& options, HttpHandler& handler);
  HttpServer(HttpServer&&) noexcept;
  HttpServer& operator=(HttpServer&&) = delete;  // It would drop a server that runs.
  ~HttpServer();                                 // Stop(0 s).

  int port() const;         // The one listened on.
  int connections() const;  // Open now.

  // Accepts no more, closes idle connections, lets running exchanges end for at most `drain`; asks
  // those left to end at once (their ending callbacks run), and after a second cuts them off (their
  // closed callbacks run) and joins the threads. Idempotent.
  void Stop(Seconds drain);

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace divisi
