#include "divisi/control/etcd_directory.h"

#include <array>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <future>
#include <thread>
#include <utility>

#include "divisi/core/format.h"

namespace divisi {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

// Between looks at the session's timers, which are tenths of seconds.
constexpr auto kTick = std::chrono::milliseconds(100);
constexpr Seconds kFarewell{1};
// Ten thousand members of a kilobyte each are 15 MB as base64.
constexpr uint64_t kMostBytes = uint64_t{64} << 20;

struct Endpoint {
  std::string host;
  std::string port;
  std::string Text() const { return host + ":" + port; }
};

Result<Endpoint> ParseEndpoint(const std::string& text) {
  constexpr std::string_view kScheme = "http://";
  std::string rest = text;
  if (rest.starts_with(kScheme)) rest = rest.substr(kScheme.size());
  while (rest.ends_with('/')) rest.pop_back();
  const size_t colon = rest.rfind(':');
  int port = 2379;  // etcd's own
  std::string host = rest.substr(0, colon);
  if (colon != rest.npos) {
    const char* end = rest.data() + rest.size();
    const auto [stop, status] = std::from_chars(rest.data() + colon + 1, end, port);
    if (status != std::errc() || stop != end || port <= 0 || port > 65535) host.clear();
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty() || host.find('/') != host.npos) {
    return Error{Code::kInvalidArgument,
                 Format("'{}': expected http://HOST:PORT, as in http://10.0.0.5:2379", text)};
  }
  return Endpoint{host, Format("{}", port)};
}

http::request<http::string_body> Post(const Endpoint& to, const std::string& path,
                                      const std::string& body) {
  http::request<http::string_body> request(http::verb::post, path, 11);
  request.set(http::field::host, to.host + ":" + to.port);
  request.set(http::field::content_type, "application/json");
  request.keep_alive(false);
  request.body() = body;
  request.prepare_payload();
  return request;
}

std::chrono::nanoseconds Duration(Seconds time) {
  return std::chrono::nanoseconds(static_cast<int64_t>(time.value * 1e9));
}

using Ends = tcp::resolver::results_type;

// One connection, its request on the way out.
struct Exchange {
  // turn: the place of `e` in the order in which endpoints are tried.
  Exchange(asio::io_context& io, const std::pair<size_t, Endpoint>& e, const std::string& path,
           const std::string& body)
      : turn(e.first),
        endpoint(e.second),
        request(Post(endpoint, path, body)),
        resolver(io),
        lookup(io),
        stream(io) {}

  // sent, once: with what went wrong, if anything did.
  template <typename Fn>
  void Send(const std::shared_ptr<Exchange>& self, Seconds patience, Fn sent) {
    stream.expires_after(Duration(patience));
    Resolve(self, patience, [self, sent](error_code error, const Ends& ends) {
      if (error) return sent(error);
      self->stream.async_connect(ends, [self, sent](error_code failed, const tcp::endpoint&) {
        if (failed) return sent(failed);
        http::async_write(self->stream, self->request,
                          [self, sent](error_code wrong, size_t) { sent(wrong); });
      });
    });
  }
  // Whoever answers for names may take its time, which nothing ends: from here on it is not waited
  // for.
  template <typename Fn>
  void Resolve(const std::shared_ptr<Exchange>& self, Seconds patience, Fn then) {
    error_code named;
    const auto address = asio::ip::make_address(endpoint.host, named);
    if (!named) {
      const tcp::endpoint end(address, static_cast<uint16_t>(std::stoi(endpoint.port)));
      return then(error_code(), Ends::create(end, endpoint.host, endpoint.port));
    }
    lookup.expires_after(Duration(patience));
    lookup.async_wait([self, then](error_code error) {
      if (std::exchange(self->looked_up, true)) return;
      self->resolver.cancel();
      then(error ? error : error_code(asio::error::timed_out), Ends());
    });
    resolver.async_resolve(endpoint.host, endpoint.port,
                           [self, then](error_code error, const Ends& ends) {
                             if (std::exchange(self->looked_up, true)) return;
                             self->lookup.cancel();
                             then(error, ends);
                           });
  }
  void Close() {
    closed = true;
    lookup.cancel();
    resolver.cancel();
    stream.cancel();
    error_code ignored;
    stream.socket().close(ignored);
  }

  const size_t turn;
  const Endpoint endpoint;
  const http::request<http::string_body> request;
  tcp::resolver resolver;
  asio::steady_timer lookup;
  bool looked_up = false;
  bool closed = false;  // By this side
  beast::tcp_stream stream;
  beast::flat_buffer buffer;
};

struct CallExchange : Exchange {
  using Exchange::Exchange;
  http::response_parser<http::string_body> parser;
};

struct WatchExchange : Exchange {
  using Exchange::Exchange;
  http::response_parser<http::buffer_body> parser;
  std::array<char, 16384> chunk{};
  std::string line;
};

Result<Json> AnswerOf(const http::response<http::string_body>& response) {
  auto answer = Json::Parse(response.body());
  if (!answer) return Error{Code::kUnavailable, "etcd's answer is no JSON"};
  if (response.result() == http::status::ok) return answer;
  const Json* said = answer->Find("error");
  const std::string what = said != nullptr && said->is_string() ? said->as_string() : "an error";
  return Error{response.result() == http::status::not_found ? Code::kNotFound : Code::kUnavailable,
               what};
}

}  // namespace

// All members are the thread's own once it runs.
struct EtcdDirectory::State {
  State(const EtcdOptions& options, const std::string& watched, const Clock& c, Logger& l)
      : clock(c),
        logger(l),
        patience(options.lease * (1.0 / 3)),
        session({.prefix = "/divisi/" + options.cluster + "/",
                 .watched = watched,
                 .lease = options.lease}) {}

  void Pump();
  void Tick();
  void Begin(const EtcdCall& call);
  void Answer(const CallExchange& exchange, uint64_t call, const Result<Json>& answer);
  void Begin(const EtcdWatch& watch);
  void Read(const std::shared_ptr<WatchExchange>& exchange, uint64_t id);
  void TakeLines(WatchExchange& exchange, uint64_t id);
  void WatchEnded(const WatchExchange& exchange, uint64_t id, const std::string& why);
  void Trouble(const Exchange& exchange, const std::string& why);
  std::pair<size_t, Endpoint> Current() const {
    return {current, endpoints[current % endpoints.size()]};
  }

  const Clock& clock;
  Logger& logger;
  const Seconds patience;  // For an answer
  std::vector<Endpoint> endpoints;
  size_t current = 0;
  EtcdSession session;
  OnEvent on_event;
  std::string trouble;        // The last since etcd was there
  std::string watch_trouble;  // The last that was logged since then
  std::weak_ptr<WatchExchange> watching;
  std::promise<void> left;
  bool told_left = false;

  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  asio::steady_timer timer{io};
  std::thread thread;  // What waits for etcd holds up nobody else.
};

// Does what the session asks for.
void EtcdDirectory::State::Pump() {
  for (const EtcdCall& call : session.TakeCalls()) Begin(call);
  if (const auto watch = session.TakeWatch()) Begin(*watch);
  for (const DirectoryEvent& event : session.TakeEvents()) {
    if (event.kind == DirectoryEvent::Kind::kUp) {
      trouble.clear();
      watch_trouble.clear();
      logger.Log(LogLevel::kInfo, "etcd is there", {{"at", Current().second.Text()}});
    } else if (event.kind == DirectoryEvent::Kind::kDown) {
      logger.Log(LogLevel::kWarning, "etcd is away", {{"why", trouble}});
    }
    if (on_event) on_event(event);
  }
  if (session.left() && !std::exchange(told_left, true)) left.set_value();
}

void EtcdDirectory::State::Tick() {
  session.Tick(clock.Now());
  Pump();
  timer.expires_after(kTick);
  timer.async_wait([this](error_code error) {
    if (!error) Tick();
  });
}

// The next endpoint's turn, once for all that failed at this one: also the watch's, which would
// hear nothing where calls get no answer.
void EtcdDirectory::State::Trouble(const Exchange& exchange, const std::string& why) {
  if (exchange.turn == current) {
    ++current;
    const auto watch = watching.lock();
    if (watch && endpoints.size() > 1) watch->Close();
  }
  if (std::exchange(trouble, exchange.endpoint.Text() + ": " + why).empty()) {
    logger.Log(LogLevel::kWarning, "no answer from etcd", {{"why", trouble}});
  }
}

void EtcdDirectory::State::Begin(const EtcdCall& call) {
  auto exchange = std::make_shared<CallExchange>(io, Current(), call.path, call.body);
  exchange->parser.body_limit(kMostBytes);
  exchange->Send(exchange, patience, [this, exchange, id = call.id](error_code error) {
    if (error) return Answer(*exchange, id, Error{Code::kUnavailable, error.message()});
    http::async_read(exchange->stream, exchange->buffer, exchange->parser,
                     [this, exchange, id](error_code failed, size_t) {
                       exchange->Close();
                       const auto answer = failed ? Error{Code::kUnavailable, failed.message()}
                                                  : AnswerOf(exchange->parser.get());
                       Answer(*exchange, id, answer);
                     });
  });
}

void EtcdDirectory::State::Answer(const CallExchange& exchange, uint64_t call,
                                  const Result<Json>& answer) {
  if (!answer && answer.error().code == Code::kUnavailable) {
    Trouble(exchange, answer.error().message);
  }
  session.Answered(call, answer, clock.Now());
  Pump();
}

void EtcdDirectory::State::Begin(const EtcdWatch& watch) {
  if (const auto earlier = watching.lock()) earlier->Close();
  if (watch.body.empty()) return;
  auto exchange = std::make_shared<WatchExchange>(io, Current(), "/v3/watch", watch.body);
  exchange->parser.body_limit(boost::none);
  watching = exchange;
  exchange->Send(exchange, patience, [this, exchange, id = watch.id](error_code error) {
    if (error) return WatchEnded(*exchange, id, error.message());
    http::async_read_header(exchange->stream, exchange->buffer, exchange->parser,
                            [this, exchange, id](error_code failed, size_t) {
                              if (failed) return WatchEnded(*exchange, id, failed.message());
                              // From here the session tells whether etcd is there: its calls
                              // do, and a watch that is silent is opened anew.
                              exchange->stream.expires_never();
                              Read(exchange, id);
                            });
  });
}

void EtcdDirectory::State::Read(const std::shared_ptr<WatchExchange>& exchange, uint64_t id) {
  http::buffer_body::value_type& body = exchange->parser.get().body();
  body.data = exchange->chunk.data();
  body.size = exchange->chunk.size();
  http::async_read_some(exchange->stream, exchange->buffer, exchange->parser,
                        [this, exchange, id](error_code error, size_t) {
                          const auto& left_over = exchange->parser.get().body();
                          const size_t got = exchange->chunk.size() - left_over.size;
                          exchange->line.append(exchange->chunk.data(), got);
                          TakeLines(*exchange, id);
                          if (error && error != http::error::need_buffer)
                            return WatchEnded(*exchange, id, error.message());
                          if (exchange->parser.is_done())
                            return WatchEnded(*exchange, id, "etcd ended the watch");
                          if (exchange->line.size() > kMostBytes)
                            return WatchEnded(*exchange, id, "a line beyond the bound");
                          Read(exchange, id);
                        });
}

void EtcdDirectory::State::TakeLines(WatchExchange& exchange, uint64_t id) {
  for (size_t end; (end = exchange.line.find('\n')) != std::string::npos;) {
    const auto line = Json::Parse(exchange.line.substr(0, end));
    exchange.line.erase(0, end + 1);
    if (line) session.Watched(id, *line, clock.Now());
  }
  Pump();
}

// Calls may get their answers where watches end: both go on at the next endpoint.
void EtcdDirectory::State::WatchEnded(const WatchExchange& exchange, uint64_t id,
                                      const std::string& why) {
  if (session.WatchEnded(id, clock.Now()) && !exchange.closed) {
    if (exchange.turn == current) ++current;
    const std::string told = exchange.endpoint.Text() + ": " + why;
    if (std::exchange(watch_trouble, told) != told) {
      logger.Log(LogLevel::kWarning, "etcd's watch ended", {{"why", told}});
    }
  }
  Pump();
}

// ---- The public face

EtcdDirectory::EtcdDirectory(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<EtcdDirectory>> EtcdDirectory::Open(const EtcdOptions& options,
                                                           const std::string& watched,
                                                           const Clock& clock, Logger& logger) {
  if (options.cluster.empty() || options.cluster.find('/') != std::string::npos) {
    return Error{
        Code::kInvalidArgument,
        Format("'{}' is no name of a cluster: give --cluster letters and digits", options.cluster)};
  }
  auto state = std::make_unique<State>(options, watched, clock, logger);
  for (const std::string& text : options.endpoints) {
    ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(text));
    state->endpoints.push_back(std::move(endpoint));
  }
  if (state->endpoints.empty()) return Error{Code::kInvalidArgument, "no etcd is named"};
  return std::unique_ptr<EtcdDirectory>(new EtcdDirectory(std::move(state)));
}

void EtcdDirectory::Start(OnEvent event) {
  state_->on_event = std::move(event);
  asio::post(state_->io, [state = state_.get()] { state->Tick(); });
  state_->thread = std::thread([io = &state_->io] { io->run(); });
}

EtcdDirectory::~EtcdDirectory() {
  State& s = *state_;
  if (!s.thread.joinable()) return;
  auto left = s.left.get_future();
  asio::post(s.io, [&s] {
    s.on_event = nullptr;
    s.session.Leave();
    s.Pump();
  });
  (void)left.wait_for(std::chrono::duration<double>(kFarewell.value));
  s.io.stop();
  s.thread.join();
}

void EtcdDirectory::Do(DirectoryAction action) {
  if (auto* keep = std::get_if<KeepAction>(&action)) return Keep(keep->key, std::move(keep->value));
  if (const auto* drop = std::get_if<DropAction>(&action)) return Drop(drop->key);
  const auto& declare = std::get<DeclareAction>(action);
  Declare(declare.key, declare.absent, declare.none_of);
}

void EtcdDirectory::Keep(const std::string& key, std::string value) {
  asio::post(state_->io, [state = state_.get(), key, value = std::move(value)]() mutable {
    state->session.Keep(key, std::move(value));
    state->session.Tick(state->clock.Now());
    state->Pump();
  });
}

void EtcdDirectory::Drop(const std::string& key) {
  asio::post(state_->io, [state = state_.get(), key] {
    state->session.Drop(key);
    state->session.Tick(state->clock.Now());
    state->Pump();
  });
}

void EtcdDirectory::Declare(const std::string& key, const std::string& absent,
                            const std::string& none_of) {
  asio::post(state_->io, [state = state_.get(), key, absent, none_of] {
    state->session.Declare(key, absent, none_of);
    state->session.Tick(state->clock.Now());
    state->Pump();
  });
}

}  // namespace divisi
