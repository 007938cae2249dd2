// HTTP between the server that moves bytes and the handler that answers, free of any library, so
// that the gateway runs in tests without sockets.
//
// A connection has one exchange at a time. The exchange belongs to its connection's strand: Handle,
// work given to Post and the closed callback run there one after another, never at once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "divisi/serve/body_budget.h"

namespace divisi {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET"
  std::string target;  // As sent: path and query.
  HttpHeaders headers;
  std::string body;
  std::string peer;    // "127.0.0.1:4711"
  BodyBudget::Share share;  // The body's, of what the server's bodies may hold together.

  // The target without its query.
  std::string_view Path() const { return std::string_view(target).substr(0, target.find('?')); }
  // First value of a header, names compared without case; empty when absent.
  std::string_view Header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  HttpHeaders headers;  // Content-Length, Connection and Transfer-Encoding are the server's.
  std::string body;
};

// "OK", "Not Found", ...
const char* HttpReason(int status);

// Without case, ASCII.
bool EqualsIgnoringCase(std::string_view a, std::string_view b);

// Why an exchange was closed before its end.
enum class HttpClosing { kClientLeft, kClientTooSlow, kServerStopped };

// The way back to one client.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  // Runs `work` on the strand, soon. From any thread. Dropped once the client has gone.
  virtual void Post(std::function<void()> work) = 0;
  // Whether the client has gone: no answer reaches it any more. From any thread.
  virtual bool IsClosed() const = 0;

  // The rest: from the strand only.

  // The whole response. Ends the exchange.
  virtual void Respond(HttpResponse response) = 0;
  // Or a stream: head, any number of writes, end. Body bytes go out as soon as the socket takes
  // them. A client that lets more than the server's bound pile up is cut off: closed is called.
  virtual void BeginStream(HttpResponse head) = 0;
  virtual void Write(std::string_view bytes) = 0;
  virtual void EndStream() = 0;

  // `closed` runs once, later, if the client goes away before the exchange ends (also when it went
  // before this call). Nothing is sent after; answers to a client that went are ignored.
  virtual void OnClosed(std::function<void(HttpClosing)> closed) = 0;
  // `ending` runs once, later, if the server stops and will wait no longer (also when that was
  // before this call): what is answered within a moment still goes out.
  virtual void OnEnding(std::function<void()> ending) = 0;
};

// What the server turned away by itself, so that no request of it was handled.
struct HttpRefusal {
  int status = 0;  // What it was answered; 0: nothing, it was closed or not even accepted.
  std::string reason;
  std::string peer;  // Empty: unknown.
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // For the record. From any thread; must not wait.
  virtual void OnRefusal(const HttpRefusal&) {}
  // Answers through `exchange`, now or later; it is kept alive by whoever still has to answer.
  virtual void Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) = 0;
};

}  // namespace divisi
