// One client's connection inside the HTTP server. Internal to http_server.cc and
// http_connection.cc, the two files of serve/ that include Boost.Asio.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "divisi/serve/http_server.h"

namespace divisi {

class HttpConnection final : public HttpExchange,
                             public std::enable_shared_from_this<HttpConnection> {
 public:
  using Socket = boost::asio::basic_stream_socket<
      boost::asio::ip::tcp, boost::asio::strand<boost::asio::io_context::executor_type>>;

  // ended runs on the strand when the connection is closed; options, bodies and handler are not
  // used after it. io is what the socket's executor belongs to: kept alive, since whoever answers
  // may let go of its exchange after the server has gone.
  HttpConnection(std::shared_ptr<boost::asio::io_context> io, Socket socket,
                 const HttpServerOptions& options, BodyBudget& bodies, HttpHandler& handler,
                 std::function<void(HttpConnection*)> ended);

  void Begin();
  // Answers with `response` whatever comes, and closes: for a server that is full.
  void Refuse(std::string reason, HttpResponse response);
  // From any thread. Drain: close once the exchange now running, if any, has ended. End: whoever
  // answers is asked to do so at once. Abort: close now.
  void Drain();
  void End();
  void Abort();

  void Post(std::function<void()> work) override;
  bool IsClosed() const override { return deaf_.load(std::memory_order_relaxed); }
  void Respond(HttpResponse response) override;
  void BeginStream(HttpResponse head) override;
  void Write(std::string_view bytes) override;
  void EndStream() override;
  void OnClosed(std::function<void(HttpClosing)> closed) override;
  void OnEnding(std::function<void()> ending) override;

 private:
  enum class Phase {
    kReading,    // A request comes in.
    kAnswering,  // The handler has it.
    kLingering,  // All is said; the client's last bytes are thrown away, then closed.
    kClosed,
  };
  using Time = std::chrono::steady_clock::time_point;

  void Read();
  void OnRead(const boost::system::error_code& error, size_t count);
  void Advance();  // Parses and dispatches what is in `input_`.
  bool ParseMore();
  void Dispatch();
  // The server's own answer to what it does not let through to the handler; the last one.
  void TurnAway(std::string reason, HttpResponse response);
  void SendHead(const HttpResponse& response, std::string_view framing);
  void Flush();
  void OnWritten(const boost::system::error_code& error, size_t count);
  void OnFlushed();
  void EndExchange();
  void Close(HttpClosing why = HttpClosing::kClientLeft);
  size_t Unsent() const { return output_.size() + writing_.size() - written_; }
  void SetDeadline(Time& deadline, Seconds from_now);
  void OnTimer();

  static constexpr Time kNever = Time::max();

  const std::shared_ptr<boost::asio::io_context> io_;
  Socket socket_;
  boost::asio::steady_timer timer_;
  const HttpServerOptions& options_;
  HttpHandler& handler_;
  std::function<void(HttpConnection*)> ended_;
  std::string peer_;

  Phase phase_ = Phase::kReading;
  bool keep_alive_ = true;
  bool draining_ = false;
  bool ending_ = false;
  bool http_1_0_ = false;
  bool head_only_ = false;      // HEAD: no body goes out.
  bool streaming_ = false;
  std::function<void(HttpClosing)> closed_;
  HttpClosing why_closed_ = HttpClosing::kClientLeft;
  std::function<void()> on_ending_;
  std::atomic<bool> deaf_{false};  // Closed: work that others post is dropped.

  HttpParser parser_;
  std::string input_;           // Read, not yet parsed.
  std::array<char, 8192> read_buffer_;
  bool reading_ = false;        // A read is in flight.
  bool input_ended_ = false;
  bool advancing_ = false;      // Advance is running further up the stack.
  bool continued_ = false;      // "100 Continue" was sent for this request.
  size_t lingered_bytes_ = 0;

  std::string output_;          // To be written next.
  std::string writing_;         // Being written, from written_ on.
  size_t written_ = 0;
  bool write_in_flight_ = false;

  // The timer stands at or before the earlier of the two and is moved only when it fires or stands
  // too late: a stream sets a deadline for each write, and moving the timer costs more than that.
  Time read_deadline_ = kNever;
  Time write_deadline_ = kNever;
  Time timer_at_ = kNever;
};

}  // namespace divisi
