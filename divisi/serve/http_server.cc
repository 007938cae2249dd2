#include "divisi/serve/http_server.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "divisi/core/format.h"
#include "divisi/serve/http_connection.h"
#include "divisi/serve/openai_error.h"

namespace divisi {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// Clients told 503 while the server is full; beyond these, new ones are closed unheard.
constexpr int kMaxRefusing = 64;
// After accept fails (no file descriptors left, say): until one may have come free.
constexpr std::chrono::milliseconds kAcceptRetry{50};
// Past the drain: for an answer's last bytes to go out, and for the client to close.
constexpr std::chrono::seconds kEndWait{1};
// Closing needs only that each strand runs once; far more than that.
constexpr std::chrono::seconds kAbortWait{10};

constexpr const char* kTooMany = "too many connections";

HttpResponse FullResponse() {
  return {.status = 503,
          .headers = {{"Content-Type", "application/json"}, {"Retry-After", "1"}},
          .body = ErrorBody({.type = "service_unavailable",
                             .message = "too many connections; try again in a second"})};
}

}  // namespace

struct HttpServer::State {
  HttpServerOptions options;
  HttpHandler& handler;
  BodyBudget bodies;
  // Shared with the connections, which others may hold longer than this lives.
  std::shared_ptr<asio::io_context> io;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work;
  // Both on one strand.
  tcp::acceptor acceptor;
  asio::steady_timer accept_timer;
  std::vector<std::thread> threads;
  int port = 0;

  std::mutex mutex;
  std::condition_variable ended;
  // Guarded by mutex. The server keeps its connections alive until they close.
  std::unordered_map<HttpConnection*, std::shared_ptr<HttpConnection>> connections;
  bool stopping = false;

  State(const HttpServerOptions& o, HttpHandler& h)
      : options(o),
        handler(h),
        bodies(o.max_body_bytes_together),
        io(std::make_shared<asio::io_context>(o.threads)),
        work(asio::make_work_guard(*io)),
        acceptor(asio::make_strand(*io)),
        accept_timer(acceptor.get_executor()) {}

  Result<void> Listen();
  void Accept();
  void Take(HttpConnection::Socket socket);
  void Stop(Seconds drain);
};

Result<void> HttpServer::State::Listen() {
  boost::system::error_code error;
  tcp::resolver resolver(*io);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    return Error{Code::kInvalidArgument,
                 Format("cannot listen on host '{}': {}; give an address of "
                        "this machine, or 0.0.0.0 for all",
                        options.host, error.message())};
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  const auto failed = [&](Code code) {
    return Error{code, Format("cannot listen on {}:{}: {}; choose another port", options.host,
                              options.port, error.message())};
  };
  if (acceptor.open(endpoint.protocol(), error)) return failed(Code::kInternal);
  if (acceptor.set_option(tcp::acceptor::reuse_address(true), error))
    return failed(Code::kInternal);
  if (acceptor.bind(endpoint, error)) return failed(Code::kUnavailable);
  if (acceptor.listen(asio::socket_base::max_listen_connections, error)) {
    return failed(Code::kUnavailable);
  }
  port = acceptor.local_endpoint(error).port();
  return {};
}

void HttpServer::State::Accept() {
  acceptor.async_accept(asio::make_strand(*io), [this](const boost::system::error_code& error,
                                                       HttpConnection::Socket socket) {
    if (error == asio::error::operation_aborted || !acceptor.is_open()) return;
    if (!error) {
      Take(std::move(socket));
      return Accept();
    }
    handler.OnRefusal({.reason = "cannot accept a connection: " + error.message()});
    accept_timer.expires_after(kAcceptRetry);
    accept_timer.async_wait([this](const auto& timer_error) {
      if (!timer_error && acceptor.is_open()) Accept();
    });
  });
}

void HttpServer::State::Take(HttpConnection::Socket socket) {
  const auto forget = [this](HttpConnection* connection) {
    std::lock_guard lock(mutex);
    connections.erase(connection);
    ended.notify_all();
  };
  std::shared_ptr<HttpConnection> connection;
  size_t before = 0;
  {
    std::lock_guard lock(mutex);
    before = connections.size();
    if (stopping) return;
    if (before < static_cast<size_t>(options.max_connections + kMaxRefusing)) {
      connection =
          std::make_shared<HttpConnection>(io, std::move(socket), options, bodies, handler, forget);
      connections.emplace(connection.get(), connection);
    }
  }
  if (connection == nullptr) {
    handler.OnRefusal({.reason = kTooMany});
  } else if (before >= static_cast<size_t>(options.max_connections)) {
    connection->Refuse(kTooMany, FullResponse());
  } else {
    connection->Begin();
  }
}

void HttpServer::State::Stop(Seconds drain) {
  std::unique_lock lock(mutex);
  if (threads.empty()) return;
  stopping = true;
  asio::post(acceptor.get_executor(), [this] {
    boost::system::error_code ignored;  // Closed either way.
    acceptor.close(ignored);
    accept_timer.cancel();
  });
  const auto none_left = [this] { return connections.empty(); };
  for (const auto& [raw, connection] : connections) connection->Drain();
  ended.wait_for(lock, std::chrono::duration<double>(drain.value), none_left);
  for (const auto& [raw, connection] : connections) connection->End();
  ended.wait_for(lock, kEndWait, none_left);
  for (const auto& [raw, connection] : connections) connection->Abort();
  ended.wait_for(lock, kAbortWait, none_left);
  work.reset();
  io->stop();
  std::vector<std::thread> joining = std::move(threads);
  threads.clear();
  lock.unlock();
  for (std::thread& thread : joining) thread.join();
  // Handlers still queued hold their connections, and those the queue: run them, all are closed.
  io->restart();
  io->poll();
}

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
HttpServer::HttpServer(HttpServer&&) noexcept = default;
HttpServer::~HttpServer() {
  if (state_) state_->Stop(Seconds(0));
}

namespace {

// A limit so low that it leaves none is not ours to mend: clients get half.
int SparingConnections() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::numeric_limits<int>::max();
  const auto most = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 30));
  return static_cast<int>(std::max<int64_t>({most - kSparedDescriptors, most / 2, 1}));
}

}  // namespace

Result<HttpServer> HttpServer::Start(const HttpServerOptions& options, HttpHandler& handler) {
  CHECK(options.threads >= 1 && options.max_connections >= 1, "{} threads, {} connections",
        options.threads, options.max_connections);
  HttpServerOptions limited = options;
  limited.max_connections = std::min(options.max_connections, SparingConnections());
  auto state = std::make_unique<State>(limited, handler);
  RETURN_IF_ERROR(state->Listen());
  state->Accept();
  for (int i = 0; i < options.threads; ++i) {
    state->threads.emplace_back([raw = state.get()] { raw->io->run(); });
  }
  return HttpServer(std::move(state));
}

int HttpServer::port() const { return state_->port; }

int HttpServer::connections() const {
  std::lock_guard lock(state_->mutex);
  return static_cast<int>(state_->connections.size());
}

void HttpServer::Stop(Seconds drain) { state_->Stop(drain); }

}  // namespace divisi
