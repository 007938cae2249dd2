#include "divisi/serve/http_connection.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <ctime>

#include "divisi/core/check.h"
#include "divisi/core/clock.h"
#include "divisi/core/format.h"
#include "divisi/serve/openai_error.h"

namespace divisi {
namespace {

namespace asio = boost::asio;

// A client still sending when the last answer goes out would lose that answer to a reset if the
// socket were closed at once (RFC 9112, section 9.6). So its bytes are thrown away for a while.
constexpr Seconds kLingerTimeout{2};
constexpr size_t kMaxLingerBytes = 64 << 20;

std::string DateHeader() {
  const std::time_t now = static_cast<std::time_t>(UnixSeconds());
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[48];
  const size_t length = std::strftime(text, sizeof text, "Date: %a, %d %b %Y %T GMT\r\n", &parts);
  return std::string(text, length);
}

HttpResponse ErrorResponse(int status, std::string message) {
  return {.status = status,
          .headers = {{"Content-Type", "application/json"}},
          .body = ErrorBody({.status = status, .message = std::move(message)})};
}

std::string PeerName(const HttpConnection::Socket& socket) {
  boost::system::error_code error;
  const auto endpoint = socket.remote_endpoint(error);
  if (error) return "?";
  return Format("{}:{}", endpoint.address().to_string(), endpoint.port());
}

}  // namespace

HttpConnection::HttpConnection(std::shared_ptr<asio::io_context> io, Socket socket,
                               const HttpServerOptions& options, BodyBudget& bodies,
                               HttpHandler& handler,
                               std::function<void(HttpConnection*)> ended)
    : io_(std::move(io)),
      socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      options_(options),
      handler_(handler),
      ended_(std::move(ended)),
      peer_(PeerName(socket_)),
      parser_(options.parser, bodies) {
  boost::system::error_code ignored;  // A hint: without it, small writes wait for acknowledgements.
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  if (options.send_buffer_bytes > 0) {
    socket_.set_option(asio::socket_base::send_buffer_size(options.send_buffer_bytes), ignored);
  }
}

void HttpConnection::Begin() {
  Post([self = shared_from_this()] {
    self->SetDeadline(self->read_deadline_, self->options_.idle_timeout);
    self->Read();
  });
}

void HttpConnection::Refuse(std::string reason, HttpResponse response) {
  Post([self = shared_from_this(), reason = std::move(reason),
        response = std::move(response)]() mutable {
    self->TurnAway(std::move(reason), std::move(response));
    self->Read();
  });
}

void HttpConnection::Drain() {
  Post([self = shared_from_this()] {
    self->draining_ = true;
    if (self->phase_ != Phase::kReading) return;  // EndExchange looks at draining_.
    self->phase_ = Phase::kLingering;
    if (self->Unsent() == 0) self->Close();
  });
}

void HttpConnection::End() {
  Post([self = shared_from_this()] {
    self->ending_ = true;
    if (auto ending = std::exchange(self->on_ending_, nullptr)) ending();
  });
}

void HttpConnection::Abort() {
  Post([self = shared_from_this()] { self->Close(HttpClosing::kServerStopped); });
}

void HttpConnection::Post(std::function<void()> work) {
  if (!IsClosed()) asio::post(socket_.get_executor(), std::move(work));
}

void HttpConnection::OnClosed(std::function<void(HttpClosing)> closed) {
  if (phase_ == Phase::kAnswering) {
    closed_ = std::move(closed);
  } else if (phase_ == Phase::kClosed) {
    asio::post(socket_.get_executor(),
               [closed = std::move(closed), why = why_closed_] { closed(why); });
  }
}

void HttpConnection::OnEnding(std::function<void()> ending) {
  if (phase_ != Phase::kAnswering) return;
  if (ending_) return Post(std::move(ending));
  on_ending_ = std::move(ending);
}

// ---- Input

void HttpConnection::Read() {
  const bool full = phase_ == Phase::kAnswering && input_.size() >= options_.max_pipelined_bytes;
  const bool behind = phase_ == Phase::kReading && Unsent() > options_.max_buffered_bytes;
  if (reading_ || input_ended_ || full || behind || phase_ == Phase::kClosed) return;
  reading_ = true;
  socket_.async_read_some(asio::buffer(read_buffer_),
                          [self = shared_from_this()](const auto& error, size_t count) {
                            self->reading_ = false;
                            self->OnRead(error, count);
                          });
}

void HttpConnection::OnRead(const boost::system::error_code& error, size_t count) {
  if (phase_ == Phase::kClosed) return;
  if (error == asio::error::eof && phase_ != Phase::kAnswering && Unsent() > 0) {
    input_ended_ = true;  // The client has said all; it still gets what it is owed.
    phase_ = Phase::kLingering;
    return;
  }
  if (error) return Close();
  if (phase_ == Phase::kLingering) {
    lingered_bytes_ += count;
    if (lingered_bytes_ > kMaxLingerBytes) return Close();
  } else {
    input_.append(read_buffer_.data(), count);
    Advance();
  }
  Read();
}

void HttpConnection::Advance() {
  if (advancing_) return;  // A handler that answers at once leads back here.
  advancing_ = true;
  while (phase_ == Phase::kReading && !input_.empty() &&
         Unsent() <= options_.max_buffered_bytes && ParseMore()) {
  }
  advancing_ = false;
}

// False when more bytes must come first.
bool HttpConnection::ParseMore() {
  input_.erase(0, parser_.Push(input_));
  // What the parser leaves of a body is at most a chunk's frame, which is shorter than any head.
  const bool endless_frame = parser_.state() == HttpParser::State::kBody &&
                             input_.size() > options_.parser.max_head_bytes;
  if (parser_.state() == HttpParser::State::kFailed || endless_frame) {
    HttpResponse response =
        endless_frame ? ErrorResponse(400, "a chunk's frame in the request's body is too long")
                      : parser_.error_response();
    const char* reason = HttpReason(response.status);
    TurnAway(reason, std::move(response));
    return false;
  }
  if (parser_.state() == HttpParser::State::kDone) {
    Dispatch();
    return true;
  }
  if (parser_.state() == HttpParser::State::kBody && !continued_) {
    SetDeadline(read_deadline_, options_.body_timeout);
    if (parser_.expects_continue()) output_ += "HTTP/1.1 100 Continue\r\n\r\n";
    continued_ = true;
    Flush();
  }
  return false;
}

void HttpConnection::Dispatch() {
  HttpParser::Taken taken = parser_.Take();
  keep_alive_ = taken.keep_alive && !draining_;
  http_1_0_ = taken.http_1_0;
  head_only_ = taken.request.method == "HEAD";
  continued_ = false;
  taken.request.peer = peer_;
  phase_ = Phase::kAnswering;
  read_deadline_ = kNever;  // The answer takes what time the handler gives it.
  handler_.Handle(std::move(taken.request), shared_from_this());
}

void HttpConnection::TurnAway(std::string reason, HttpResponse response) {
  phase_ = Phase::kAnswering;
  keep_alive_ = false;
  handler_.OnRefusal({response.status, std::move(reason), peer_});
  Respond(std::move(response));
}

// ---- Output

void HttpConnection::SendHead(const HttpResponse& response, std::string_view framing) {
  output_ += Format("HTTP/1.1 {} {}\r\n", response.status, HttpReason(response.status));
  for (const auto& [name, value] : response.headers) output_ += Format("{}: {}\r\n", name, value);
  output_ += DateHeader();
  output_ += framing;
  output_ += keep_alive_ && !draining_ ? "Connection: keep-alive\r\n\r\n"
                                       : "Connection: close\r\n\r\n";
}

void HttpConnection::Respond(HttpResponse response) {
  if (phase_ == Phase::kClosed) return;
  CHECK(phase_ == Phase::kAnswering && !streaming_, "a second answer to one request");
  const bool bodiless = response.status == 204 || response.status == 304;
  SendHead(response, bodiless ? "" : Format("Content-Length: {}\r\n", response.body.size()));
  if (!head_only_ && !bodiless) output_ += response.body;
  EndExchange();
}

void HttpConnection::BeginStream(HttpResponse head) {
  if (phase_ == Phase::kClosed) return;
  CHECK(phase_ == Phase::kAnswering && !streaming_, "a second answer to one request");
  streaming_ = true;
  if (http_1_0_) keep_alive_ = false;  // The end of the stream is the end of the connection.
  SendHead(head, http_1_0_ ? "" : "Transfer-Encoding: chunked\r\n");
  Flush();
}

void HttpConnection::Write(std::string_view bytes) {
  if (phase_ == Phase::kClosed || head_only_ || bytes.empty()) return;
  CHECK(streaming_, "a write outside a stream");
  if (Unsent() + bytes.size() > options_.max_buffered_bytes) {
    return Close(HttpClosing::kClientTooSlow);
  }
  if (!http_1_0_) fmt::format_to(std::back_inserter(output_), "{:x}\r\n", bytes.size());
  output_ += bytes;
  if (!http_1_0_) output_ += "\r\n";
  Flush();
}

void HttpConnection::EndStream() {
  if (phase_ == Phase::kClosed) return;
  CHECK(streaming_, "the end of no stream");
  if (!http_1_0_ && !head_only_) output_ += "0\r\n\r\n";
  EndExchange();
}

void HttpConnection::Flush() {
  if (write_in_flight_ || Unsent() == 0 || phase_ == Phase::kClosed) return;
  if (written_ == writing_.size()) {
    writing_.clear();
    written_ = 0;
    writing_.swap(output_);
  }
  write_in_flight_ = true;
  SetDeadline(write_deadline_, options_.write_timeout);
  socket_.async_write_some(asio::buffer(writing_.data() + written_, writing_.size() - written_),
                           [self = shared_from_this()](const auto& error, size_t count) {
                             self->OnWritten(error, count);
                           });
}

void HttpConnection::OnWritten(const boost::system::error_code& error, size_t count) {
  write_in_flight_ = false;
  write_deadline_ = kNever;
  if (phase_ == Phase::kClosed) return;
  if (error) return Close();
  written_ += count;
  Flush();
  if (Unsent() == 0) OnFlushed();
}

void HttpConnection::OnFlushed() {
  if (phase_ == Phase::kLingering) {
    if (input_ended_) return Close();
    boost::system::error_code ignored;  // The read that follows tells of a dead socket.
    socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    SetDeadline(read_deadline_, kLingerTimeout);
    Read();
  } else if (phase_ == Phase::kReading) {
    Advance();  // It may have paused for a client that does not read its answers.
    Read();
  }
}

void HttpConnection::EndExchange() {
  streaming_ = false;
  head_only_ = false;
  closed_ = nullptr;
  on_ending_ = nullptr;
  if (keep_alive_ && !draining_) {
    phase_ = Phase::kReading;
    SetDeadline(read_deadline_, options_.idle_timeout);
    if (!advancing_ && !input_.empty()) Post([self = shared_from_this()] { self->Advance(); });
  } else {
    phase_ = Phase::kLingering;
    input_.clear();
  }
  Flush();
  Read();
}

void HttpConnection::Close(HttpClosing why) {
  if (phase_ == Phase::kClosed) return;
  why_closed_ = why;
  phase_ = Phase::kClosed;
  boost::system::error_code ignored;  // Closed either way.
  socket_.close(ignored);
  timer_.cancel();
  // Later, because this may run inside a call of the handler's.
  asio::post(socket_.get_executor(), [self = shared_from_this(), closed = std::move(closed_)] {
    if (closed) closed(self->why_closed_);
    self->ended_(self.get());
  });
  closed_ = nullptr;
  on_ending_ = nullptr;
  deaf_ = true;
}

// ---- Time

void HttpConnection::SetDeadline(Time& deadline, Seconds from_now) {
  deadline = std::chrono::steady_clock::now() +
             std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                 std::chrono::duration<double>(from_now.value));
  if (deadline >= timer_at_) return;
  timer_at_ = deadline;
  timer_.expires_at(deadline);
  timer_.async_wait([self = shared_from_this()](const auto& error) {
    if (!error) self->OnTimer();
  });
}

void HttpConnection::OnTimer() {
  timer_at_ = kNever;
  if (phase_ == Phase::kClosed) return;
  const Time now = std::chrono::steady_clock::now();
  const Time next = std::min(read_deadline_, write_deadline_);
  if (next > now) {
    if (next == kNever) return;
    Time& deadline = read_deadline_ < write_deadline_ ? read_deadline_ : write_deadline_;
    return SetDeadline(deadline, Seconds(std::chrono::duration<double>(next - now).count()));
  }
  const bool request_begun = !input_.empty() || parser_.state() == HttpParser::State::kBody;
  if (write_deadline_ <= now) return Close(HttpClosing::kClientTooSlow);
  if (phase_ != Phase::kReading || !request_begun) return Close();
  TurnAway(HttpReason(408), ErrorResponse(408, "the request did not arrive in time"));
}

}  // namespace divisi
