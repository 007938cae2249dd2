#include "divisi/cli/load_client.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>
#include <csignal>
#include <list>
#include <utility>
#include <vector>

#include "divisi/core/clock.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

// Room for one read: several events of a stream, and small beside a thousand connections.
constexpr size_t kReadBytes = 16 << 10;
// Response headers beyond this are no server's of ours.
constexpr uint32_t kMaxHeaderBytes = 64 << 10;

std::chrono::nanoseconds Nanoseconds(Seconds seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds.value * 1e9));
}

// A Beast body that hands each piece to the watcher and keeps none of it.
struct WatchedBody {
  struct value_type {
    const http::response_header<>* header = nullptr;  // Read before the first piece.
    ExchangeWatcher* watcher = nullptr;
    Seconds now;
    bool status_told = false;
    bool wanted = true;
  };
  class reader {
   public:
    template <bool kIsRequest, typename Fields>
    reader(http::header<kIsRequest, Fields>&, value_type& value) : value_(value) {}
    void init(const boost::optional<uint64_t>&, ErrorCode& error) { error = {}; }
    template <typename Buffers>
    size_t put(const Buffers& buffers, ErrorCode& error) {
      error = {};
      if (!std::exchange(value_.status_told, true)) {
        value_.watcher->OnStatus(static_cast<int>(value_.header->result_int()), value_.now);
      }
      size_t total = 0;
      for (auto at = asio::buffer_sequence_begin(buffers); at != asio::buffer_sequence_end(buffers);
           ++at) {
        const asio::const_buffer piece = *at;
        const std::string_view bytes(static_cast<const char*>(piece.data()), piece.size());
        value_.wanted = value_.wanted && value_.watcher->OnBody(bytes, value_.now);
        total += bytes.size();
      }
      return total;
    }
    void finish(ErrorCode& error) { error = {}; }

   private:
    value_type& value_;
  };
};

Error NetworkError(const ErrorCode& error, Code code, std::string_view what) {
  if (error == beast::error::timeout) {
    return Error{Code::kDeadlineExceeded, Format("{}: no answer in time", what)};
  }
  return Error{code, Format("{}: {}", what, error.message())};
}

}  // namespace

struct LoadClient::State {
  // One connection, with at most one exchange at a time. Shared with the handlers of its pending
  // operations, which the network calls at a time of its own.
  class Connection;
  using ConnectionPtr = std::shared_ptr<Connection>;

  State(HttpAddress a, Options o) : address(std::move(a)), options(o) {}

  HttpAddress address;
  Options options;
  SteadyClock clock;
  asio::io_context io{1};
  tcp::resolver::results_type endpoints;
  std::list<ConnectionPtr> busy;
  std::vector<ConnectionPtr> idle;
  uint64_t run = 0;  // Runs that ended; a timer of an earlier one does nothing.
};

class LoadClient::State::Connection : public std::enable_shared_from_this<Connection> {
 public:
  explicit Connection(State& state) : state_(state), stream_(state.io), leave_(state.io) {}

  void Begin(std::string text, std::unique_ptr<ExchangeWatcher> watcher, SendOptions options) {
    once_ = options.own_connection;
    text_ = std::move(text);
    watcher_ = std::move(watcher);
    at_ = state_.busy.insert(state_.busy.end(), shared_from_this());
    if (options.give_up_after > Seconds()) {
      leave_.expires_after(Nanoseconds(options.give_up_after));
      leave_.async_wait([self = shared_from_this(), exchange = exchange_](const ErrorCode& error) {
        if (!error && self->exchange_ == exchange) self->Cancel();
      });
    }
    used_before_ ? Write() : Connect();
  }

  void Cancel() { End(Error{Code::kCancelled, "the client left"}); }

 private:
  // Runs `call` unless the exchange that asked for it has ended meanwhile.
  template <typename Call>
  auto Guard(Call call) {
    return [self = shared_from_this(), exchange = exchange_, call](const ErrorCode& error,
                                                                   const auto&...) {
      if (self->exchange_ == exchange) call(*self, error);
    };
  }

  void Connect() {
    stream_.expires_after(Nanoseconds(state_.options.connect_timeout));
    stream_.async_connect(state_.endpoints, Guard([](Connection& self, const ErrorCode& error) {
                            if (error) {
                              return self.End(NetworkError(
                                  error, Code::kUnavailable,
                                  Format("cannot connect to {}", self.state_.address.Url())));
                            }
                            ErrorCode ignored;
                            self.stream_.socket().set_option(tcp::no_delay(true), ignored);
                            self.Write();
                          }));
  }

  void Write() {
    parser_.emplace();
    parser_->header_limit(kMaxHeaderBytes);
    parser_->body_limit(boost::none);  // Watchers bound what they keep.
    parser_->eager(true);
    parser_->get().body().header = &parser_->get().base();
    parser_->get().body().watcher = watcher_.get();
    buffer_.clear();
    stream_.expires_after(Nanoseconds(state_.options.silence_timeout));
    // A server may refuse before it has read everything: a failed write is followed by a read,
    // which finds either the refusal or the reason.
    asio::async_write(stream_, asio::buffer(text_),
                      Guard([](Connection& self, const ErrorCode&) { self.Read(); }));
  }

  void Read() {
    stream_.expires_after(Nanoseconds(state_.options.silence_timeout));
    stream_.async_read_some(
        buffer_.prepare(kReadBytes),
        [self = shared_from_this(), exchange = exchange_](const ErrorCode& error, size_t bytes) {
          const Seconds now = self->state_.clock.Now();
          if (self->exchange_ != exchange) return;
          self->buffer_.commit(bytes);
          error ? self->Closed(error) : self->Parse(now);
        });
  }

  void Parse(Seconds now) {
    auto& body = parser_->get().body();
    body.now = now;
    const uint64_t exchange = exchange_;
    while (buffer_.size() > 0 && !parser_->is_done()) {
      ErrorCode error;
      const size_t used = parser_->put(buffer_.data(), error);
      if (exchange_ != exchange) return;  // The watcher cancelled everything.
      buffer_.consume(used);
      if (!body.wanted) return Cancel();
      if (error == http::error::need_more) break;
      if (error) {
        return End(Error{Code::kInvalidArgument,
                         Format("the server's answer is no HTTP: {}", error.message())});
      }
    }
    parser_->is_done() ? Finish() : Read();
  }

  void Closed(const ErrorCode& error) {
    const bool began = parser_->got_some();
    if (used_before_ && !began && error != beast::error::timeout) return Reconnect();
    if (error == asio::error::eof && began) {
      ErrorCode parse_error;
      parser_->put_eof(parse_error);
      if (!parse_error && parser_->is_done()) return Finish();
    }
    End(NetworkError(error, Code::kDataLoss,
                     began ? "the connection ended within the answer" : "no answer"));
  }

  void Reconnect() {
    used_before_ = false;
    ErrorCode ignored;
    stream_.socket().close(ignored);
    Connect();
  }

  void Finish() {
    const auto& body = parser_->get().body();
    if (!body.status_told) {
      watcher_->OnStatus(static_cast<int>(parser_->get().result_int()), state_.clock.Now());
    }
    End({});
  }

  void End(const Result<void>& outcome) {
    ++exchange_;  // Handlers of this exchange that are still to come do nothing.
    leave_.cancel();
    const bool keep = outcome.ok() && !once_ && parser_->keep_alive() && buffer_.size() == 0;
    const ConnectionPtr self = shared_from_this();
    state_.busy.erase(at_);
    const std::unique_ptr<ExchangeWatcher> watcher = std::move(watcher_);
    if (keep) {
      used_before_ = true;
      stream_.expires_never();
      state_.idle.push_back(self);
    } else {
      ErrorCode ignored;
      stream_.socket().close(ignored);
    }
    watcher->OnEnd(outcome, state_.clock.Now());
  }

  State& state_;
  beast::tcp_stream stream_;
  asio::steady_timer leave_;
  beast::flat_buffer buffer_;
  boost::optional<http::response_parser<WatchedBody>> parser_;
  std::string text_;
  std::unique_ptr<ExchangeWatcher> watcher_;
  std::list<ConnectionPtr>::iterator at_;
  uint64_t exchange_ = 0;
  bool used_before_ = false;
  bool once_ = false;
};

LoadClient::LoadClient(std::unique_ptr<State> state) : state_(std::move(state)) {}
LoadClient::~LoadClient() { CancelAll(); }

Result<std::unique_ptr<LoadClient>> LoadClient::Create(const HttpAddress& address,
                                                       Options options) {
  auto state = std::make_unique<State>(address, options);
  ErrorCode error;
  state->endpoints = tcp::resolver(state->io).resolve(address.host, address.port, error);
  if (error) {
    return Error{Code::kUnavailable,
                 Format("no address for host '{}': {}", address.host, error.message())};
  }
  return std::unique_ptr<LoadClient>(new LoadClient(std::move(state)));
}

void LoadClient::Send(std::string text, std::unique_ptr<ExchangeWatcher> watcher,
                      SendOptions options) {
  State::ConnectionPtr connection;
  if (options.own_connection || state_->idle.empty()) {
    connection = std::make_shared<State::Connection>(*state_);
  } else {
    connection = std::move(state_->idle.back());
    state_->idle.pop_back();
  }
  connection->Begin(std::move(text), std::move(watcher), options);
}

void LoadClient::After(Seconds delay, std::function<void()> call) {
  auto timer = std::make_unique<asio::steady_timer>(state_->io, Nanoseconds(delay));
  auto& waiting = *timer;
  waiting.async_wait([state = state_.get(), run = state_->run, timer = std::move(timer),
                      call = std::move(call)](const ErrorCode& error) {
    if (!error && run == state->run) call();
  });
}

void LoadClient::Run(std::function<void()> on_interrupt) {
  state_->io.restart();
  const auto forever = asio::make_work_guard(state_->io);
  if (!on_interrupt) {
    state_->io.run();
    return;
  }
  asio::signal_set signals(state_->io, SIGINT);
  signals.async_wait([&](const ErrorCode& error, int) {
    if (!error) on_interrupt();
  });
  state_->io.run();
}

void LoadClient::Quit() {
  ++state_->run;
  state_->io.stop();
}

void LoadClient::CancelAll() {
  while (!state_->busy.empty()) state_->busy.front()->Cancel();
}

Seconds LoadClient::Now() const { return state_->clock.Now(); }

namespace {

class FetchWatcher final : public ExchangeWatcher {
 public:
  FetchWatcher(LoadClient& client, Result<HttpReply>& reply) : client_(client), reply_(reply) {}
  void OnStatus(int status, Seconds) override { got_.status = status; }
  bool OnBody(std::string_view bytes, Seconds) override {
    if (got_.body.size() + bytes.size() > LoadClient::kMaxReplyBytes) return false;
    got_.body += bytes;
    return true;
  }
  void OnEnd(const Result<void>& outcome, Seconds) override {
    if (outcome) {
      reply_ = std::move(got_);
    } else if (outcome.error().code == Code::kCancelled) {
      reply_ = Error{Code::kOutOfRange,
                     Format("an answer of more than {} bytes", LoadClient::kMaxReplyBytes)};
    } else {
      reply_ = outcome.error();
    }
    client_.Quit();
  }

 private:
  LoadClient& client_;
  Result<HttpReply>& reply_;
  HttpReply got_;
};

}  // namespace

Result<HttpReply> LoadClient::Fetch(std::string text) {
  Result<HttpReply> reply = Error{Code::kInternal, "no answer"};
  Send(std::move(text), std::make_unique<FetchWatcher>(*this, reply), {});
  Run();
  return reply;
}

Result<void> AllowConnections(int64_t connections) {
  constexpr int64_t kReserve = 64;  // Standard streams, libraries, a result file.
  const auto needed = static_cast<rlim_t>(connections + kReserve);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  if (limit.rlim_cur >= needed) return {};
  const rlimit wanted{needed, std::max(limit.rlim_max, needed)};
  const rlimit within{std::min(needed, limit.rlim_max), limit.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &wanted) == 0) return {};
  if (within.rlim_cur >= needed && setrlimit(RLIMIT_NOFILE, &within) == 0) return {};
  return Error{Code::kResourceExhausted,
               Format("{} connections need {} open files and the limit is {}; raise it with "
                      "'ulimit -n {}' or lower --max-concurrency",
                      connections, needed, limit.rlim_max, needed)};
}

}  // namespace divisi
