#include "divisi/control/frame_connection.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl.hpp>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "divisi/control/frame_connection_stream.h"

namespace divisi {
namespace {

using namespace frame;  // NOLINT: its other half
using TlsStream = asio::ssl::stream<tcp::socket>;

constexpr std::chrono::milliseconds kAcceptPause{100};

constexpr const char* kWantsTls =
    "this control port wants TLS; give --control-cert, --control-key and --control-ca";
constexpr const char* kIsPlain =
    "it speaks TLS, and this process was given no --control-cert, --control-key and --control-ca";

// A TLS record of a handshake begins with 22, 3, and a minor version. As the length of a frame that
// would be 66 kB or more, which no first frame is: hello and query are some hundred bytes.
bool LooksLikeTls(const FirstBytes& bytes) {
  return bytes[0] == std::byte{0x16} && bytes[1] == std::byte{0x03} && bytes[2] <= std::byte{0x04};
}

// What a handshake of ours ended with. SSL_R_WRONG_VERSION_NUMBER: what came is no record of TLS.
std::string HandshakeFailure(TlsStream& tls, const error_code& error) {
  const bool silent = BIO_number_read(SSL_get_rbio(tls.native_handle())) == 0;
  if (silent ||
      (error.category() == asio::error::get_ssl_category() &&
       ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_WRONG_VERSION_NUMBER)) {
    return Format(
        "the TLS handshake failed: the other side does not speak TLS ({}); give it "
        "--control-cert, --control-key and --control-ca, or leave them out here",
        error.message());
  }
  return Format(
      "the TLS handshake failed: {}; do both sides have certificates (--control-cert) of "
      "the same authority (--control-ca)?",
      error.message());
}

Error Refusal(const PeerAddress& peer, const std::string& why) {
  return {Code::kUnavailable, Format("{}: {}", peer.text, why)};
}

}  // namespace

struct FrameLoop::State {
  // A connection before it is one: the first bytes are awaited, or the handshake's end.
  struct Arrival : Ending, std::enable_shared_from_this<Arrival> {
    Arrival(State& s, tcp::socket given, OnAccept a)
        : state(s),
          socket(std::move(given)),
          timer(socket.get_executor()),
          peer(PeerOf(socket)),
          accept(std::move(a)),
          stranger(std::make_shared<Stranger>(s.strangers, socket.get_executor())) {}

    void Begin();
    void Sort();
    void Greet();
    void Refuse(const std::string& why);
    void End(const std::string&) override { Forget(); }
    void Forget();

    State& state;
    tcp::socket socket;
    std::optional<TlsStream> tls;
    asio::steady_timer timer;
    const PeerAddress peer;
    const OnAccept accept;
    std::shared_ptr<Stranger> stranger;
    FirstBytes first{};
    std::vector<std::byte> refusal;
  };

  // One try to connect; ends by its timer at the latest.
  struct Attempt : Ending, std::enable_shared_from_this<Attempt> {
    Attempt(State& s, std::string to, OnConnect d)
        : state(s),
          socket(*s.io),
          resolver(*s.io),
          timer(*s.io),
          target(std::move(to)),
          done(std::move(d)) {}

    void Begin(const std::string& host, int port, Seconds timeout);
    void Greet();
    void Succeed(std::shared_ptr<FrameConnection> connection);
    void Fail(const std::string& what);
    void End(const std::string& why) override { Fail(why); }

    State& state;
    tcp::socket socket;
    std::optional<TlsStream> tls;
    tcp::resolver resolver;
    asio::steady_timer timer;
    const std::string target;
    OnConnect done;
  };

  // Connections hold it too.
  const std::shared_ptr<asio::io_context> io = std::make_shared<asio::io_context>(1);
  asio::executor_work_guard<asio::io_context::executor_type> work{io->get_executor()};
  std::optional<asio::ssl::context> tls;  // Unchanged once connections are made.
  std::vector<std::unique_ptr<tcp::acceptor>> acceptors;
  std::vector<std::unique_ptr<asio::steady_timer>> timers;
  std::set<std::weak_ptr<Ending>, std::owner_less<std::weak_ptr<Ending>>> open;
  const std::shared_ptr<Stranger::All> strangers = std::make_shared<Stranger::All>();
  // What had come about before everything was cancelled must not begin anew.
  bool ending = false;
  std::thread thread;  // Sockets block nobody else.

  // In the loop's thread, as is all that follows.
  template <typename T>
  std::shared_ptr<T> Hold(std::shared_ptr<T> held) {
    std::erase_if(open, [](const auto& one) { return one.expired(); });
    open.insert(std::weak_ptr<Ending>(held));
    return held;
  }

  std::shared_ptr<FrameConnection> Plain(tcp::socket socket, Arrival* from) {
    using Plain = StreamConnection<tcp::socket>;
    Plain::Arrived arrived{.peer = PeerOf(socket)};
    if (from != nullptr) {
      arrived.read = kLengthBytes - 1;
      arrived.bytes = from->first;
    }
    return Connected<Plain>(std::move(socket), std::move(arrived), from);
  }
  std::shared_ptr<FrameConnection> Tls(TlsStream stream, const PeerAddress& peer, Arrival* from) {
    using Tls = StreamConnection<TlsStream>;
    return Connected<Tls>(std::move(stream), Tls::Arrived{.peer = peer}, from);
  }
  // from: what it was before; null: it was dialled.
  template <typename Connection, typename Stream>
  std::shared_ptr<FrameConnection> Connected(Stream stream, typename Connection::Arrived arrived,
                                             Arrival* from) {
    const auto stranger = from == nullptr ? nullptr : std::exchange(from->stranger, nullptr);
    arrived.stranger = stranger;
    auto made = Hold(std::make_shared<Connection>(io, std::move(stream), std::move(arrived)));
    if (stranger) stranger->Be(made);
    return made;
  }

  void Accept(tcp::acceptor& acceptor, const OnAccept& accept) {
    acceptor.async_accept([this, &acceptor, accept](error_code error, tcp::socket socket) {
      if (ending || error == asio::error::operation_aborted) return;
      if (error) return AcceptLater(acceptor, accept);
      if (strangers->size() >= kMostStrangers) {
        const auto oldest = strangers->front()->shared_from_this();
        oldest->EndWith("too many others came, and it had not said who it is");
      }
      Hold(std::make_shared<Arrival>(*this, std::move(socket), accept))->Begin();
      Accept(acceptor, accept);
    });
  }

  // Without descriptors, say, which others have to give back first.
  void AcceptLater(tcp::acceptor& acceptor, const OnAccept& accept) {
    const auto pause = std::make_shared<asio::steady_timer>(*io, kAcceptPause);
    pause->async_wait([this, &acceptor, accept, pause](error_code) {
      if (!ending) Accept(acceptor, accept);
    });
  }

  void Repeat(asio::steady_timer& timer, Seconds every, const std::function<void()>& fn) {
    timer.expires_after(Duration(every));
    timer.async_wait([this, &timer, every, fn](error_code error) {
      if (error || ending) return;
      fn();
      Repeat(timer, every, fn);
    });
  }
};

// ---- Being connected to

// All but the last byte of the first length: enough to sort, and a whole one is left to read.
void FrameLoop::State::Arrival::Begin() {
  stranger->Be(weak_from_this());
  stranger->BeginToWait();
  timer.expires_after(Duration(kSilence));
  timer.async_wait([self = shared_from_this()](error_code error) {
    if (!error) self->Forget();
  });
  asio::async_read(socket, asio::buffer(first.data(), kLengthBytes - 1),
                   [self = shared_from_this()](error_code error, size_t) {
                     if (error) return self->Forget();  // A port scan, or a probe.
                     self->Sort();
                   });
}

void FrameLoop::State::Arrival::Sort() {
  const bool speaks_tls = LooksLikeTls(first);
  if (!state.tls && !speaks_tls) {
    timer.cancel();
    return accept(state.Plain(std::move(socket), this));
  }
  if (!state.tls) return Refuse(kIsPlain);
  if (speaks_tls) return Greet();
  // In its own words.
  refusal = WithLength(EncodeClusterMessage(RejectMessage{kWantsTls}));
  asio::async_write(socket, asio::buffer(refusal), [self = shared_from_this()](error_code, size_t) {
    self->Refuse("it does not speak TLS");
  });
}

void FrameLoop::State::Arrival::Greet() {
  tls.emplace(std::move(socket), *state.tls);
  tls->async_handshake(
      asio::ssl::stream_base::server, asio::buffer(first.data(), kLengthBytes - 1),
      [self = shared_from_this()](error_code error, size_t) {
        if (error) return self->Refuse("the TLS handshake failed: " + error.message());
        self->timer.cancel();
        self->accept(self->state.Tls(std::move(*self->tls), self->peer, self.get()));
      });
}

void FrameLoop::State::Arrival::Refuse(const std::string& why) {
  accept(Refusal(peer, why));
  Forget();
}

void FrameLoop::State::Arrival::Forget() {
  timer.cancel();
  stranger.reset();
  error_code ignored;
  (tls ? tls->next_layer() : socket).close(ignored);
}

// ---- Connecting

void FrameLoop::State::Attempt::Begin(const std::string& host, int port, Seconds timeout) {
  timer.expires_after(Duration(timeout));
  timer.async_wait([self = shared_from_this()](error_code error) {
    if (!error) self->Fail("no answer in time");
  });
  resolver.async_resolve(
      host, std::to_string(port),
      [self = shared_from_this()](error_code error, const tcp::resolver::results_type& ends) {
        if (error) return self->Fail(error.message());
        if (!self->done) return;
        asio::async_connect(self->socket, ends, [self](error_code failed, const tcp::endpoint&) {
          if (failed) return self->Fail(failed.message());
          self->Greet();
        });
      });
}

void FrameLoop::State::Attempt::Greet() {
  if (!done) return;
  if (!state.tls) return Succeed(state.Plain(std::move(socket), nullptr));
  tls.emplace(std::move(socket), *state.tls);
  tls->async_handshake(asio::ssl::stream_base::client,
                       [self = shared_from_this()](error_code error) {
                         if (error) return self->Fail(HandshakeFailure(*self->tls, error));
                         const PeerAddress peer = PeerOf(self->tls->next_layer());
                         self->Succeed(self->state.Tls(std::move(*self->tls), peer, nullptr));
                       });
}

void FrameLoop::State::Attempt::Succeed(std::shared_ptr<FrameConnection> connection) {
  timer.cancel();
  if (done) std::exchange(done, nullptr)(std::move(connection));
}

void FrameLoop::State::Attempt::Fail(const std::string& what) {
  timer.cancel();
  resolver.cancel();
  error_code ignored;
  (tls ? tls->next_layer() : socket).close(ignored);
  if (!done) return;
  std::exchange(done,
                nullptr)(Error{Code::kUnavailable, Format("cannot reach {}: {}", target, what)});
}

// ---- The public face

FrameLoop::FrameLoop() : state_(std::make_unique<State>()) {
  state_->thread = std::thread([io = state_->io] { io->run(); });
}

FrameLoop::~FrameLoop() {
  asio::post(*state_->io, [state = state_.get()] {
    state->ending = true;
    for (const auto& held : std::exchange(state->open, {})) {
      if (const auto one = held.lock()) one->End("this process ends");
    }
    for (const auto& acceptor : state->acceptors) acceptor->close();
    for (const auto& timer : state->timers) timer->cancel();
    state->work.reset();
  });
  state_->thread.join();
}

Result<void> FrameLoop::UseTls(const TlsFiles& files) {
  using asio::ssl::context;
  context& tls = state_->tls.emplace(context::tls);
  error_code error;
  const auto failed = [&](const std::string& file) {
    return Error{Code::kInvalidArgument, Format("{}: {}", file, error.message())};
  };
  if (tls.use_certificate_chain_file(files.certificate, error)) return failed(files.certificate);
  if (tls.use_private_key_file(files.key, context::pem, error)) return failed(files.key);
  if (tls.load_verify_file(files.authority, error)) return failed(files.authority);
  tls.set_options(context::default_workarounds | context::no_sslv2 | context::no_sslv3 |
                      context::no_tlsv1 | context::no_tlsv1_1,
                  error);
  if (!error) {
    tls.set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert, error);
  }
  if (error) return Error{Code::kInternal, "TLS: " + error.message()};
  return {};
}

Result<int> FrameLoop::Listen(const std::string& host, int port, OnAccept accept) {
  error_code error;
  const auto address = asio::ip::make_address(host, error);
  if (error) {
    return Error{Code::kInvalidArgument, Format("'{}' is not an address to listen on", host)};
  }
  auto acceptor = std::make_unique<tcp::acceptor>(*state_->io);
  const tcp::endpoint end(address, static_cast<uint16_t>(port));
  acceptor->open(end.protocol(), error);
  if (!error) acceptor->set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor->bind(end, error);
  if (!error) acceptor->listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    return Error{Code::kUnavailable,
                 Format("cannot listen on {}:{}: {}", host, port, error.message())};
  }
  const int bound = acceptor->local_endpoint().port();
  asio::post(*state_->io, [this, owned = std::move(acceptor), accept]() mutable {
    state_->acceptors.push_back(std::move(owned));
    state_->Accept(*state_->acceptors.back(), accept);
  });
  return bound;
}

void FrameLoop::Connect(const std::string& host, int port, Seconds timeout, OnConnect done) {
  asio::post(*state_->io, [state = state_.get(), host, port, timeout, done = std::move(done)] {
    if (state->ending) return done(Error{Code::kCancelled, "this process ends"});
    const std::string target = Format("{}:{}", host, port);
    state->Hold(std::make_shared<State::Attempt>(*state, target, done))->Begin(host, port, timeout);
  });
}

void FrameLoop::Post(std::function<void()> fn) { asio::post(*state_->io, std::move(fn)); }

void FrameLoop::Every(Seconds every, std::function<void()> fn) {
  asio::post(*state_->io, [this, every, fn = std::move(fn)] {
    if (state_->ending) return;
    state_->timers.push_back(std::make_unique<asio::steady_timer>(*state_->io));
    state_->Repeat(*state_->timers.back(), every, fn);
  });
}

}  // namespace divisi
