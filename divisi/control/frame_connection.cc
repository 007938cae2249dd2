#include "divisi/control/frame_connection.h"

#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "divisi/control/cluster_message.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

std::chrono::nanoseconds Duration(Seconds time) {
  return std::chrono::nanoseconds(static_cast<int64_t>(time.value * 1e9));
}

std::string AddressOf(const tcp::socket& socket) {
  error_code error;
  const tcp::endpoint end = socket.remote_endpoint(error);
  return error ? std::string("?") : Format("{}:{}", end.address().to_string(), end.port());
}

// All members are the loop thread's own, but for queued_bytes_ and what Send and Close post.
class TcpConnection final : public FrameConnection,
                            public std::enable_shared_from_this<TcpConnection> {
 public:
  explicit TcpConnection(tcp::socket socket)
      : socket_(std::move(socket)), silence_(socket_.get_executor()), peer_(AddressOf(socket_)) {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
  }

  void Start(OnFrame frame, OnEnd end) {
    asio::post(socket_.get_executor(), [self = shared_from_this(), frame = std::move(frame),
                                        end = std::move(end)]() mutable {
      self->on_frame_ = std::move(frame);
      self->on_end_ = std::move(end);
      if (self->ended_) return self->TellEnd();
      self->WatchSilence();
      self->ReadLength();
    });
  }

  void Send(std::vector<std::byte> frame) override {
    asio::post(socket_.get_executor(),
               [self = shared_from_this(), frame = std::move(frame)]() mutable {
                 self->Queue(std::move(frame));
               });
  }
  void Close(const std::string& why) override {
    asio::post(socket_.get_executor(), [self = shared_from_this(), why] { self->End(why); });
  }
  const std::string& peer() const override { return peer_; }

  void End(const std::string& why) {
    if (ended_) return;
    ended_ = true;
    why_ = why;
    error_code ignored;
    socket_.close(ignored);
    silence_.cancel();
    TellEnd();
  }

 private:
  void TellEnd() {
    if (!on_end_) return;
    on_frame_ = nullptr;
    std::exchange(on_end_, nullptr)(why_);
  }

  void WatchSilence() {
    silence_.expires_after(Duration(kSilence));
    silence_.async_wait([self = shared_from_this()](error_code error) {
      if (!error) self->End("nothing was heard for " + HumanSeconds(kSilence));
    });
  }

  void ReadLength() {
    asio::async_read(socket_, asio::buffer(length_),
                     [self = shared_from_this()](error_code error, size_t) {
                       if (error) return self->End(error.message());
                       uint32_t length = 0;
                       for (size_t i = 0; i < 4; ++i) {
                         length |= std::to_integer<uint32_t>(self->length_[i]) << (8 * i);
                       }
                       if (length > kMostFrameBytes) return self->End("a frame beyond the bound");
                       self->ReadBody(length);
                     });
  }

  void ReadBody(uint32_t length) {
    body_.resize(length);
    asio::async_read(socket_, asio::buffer(body_),
                     [self = shared_from_this()](error_code error, size_t) {
                       if (error) return self->End(error.message());
                       self->WatchSilence();
                       if (self->on_frame_) self->on_frame_(std::move(self->body_));
                       self->body_ = {};
                       if (!self->ended_) self->ReadLength();
                     });
  }

  void Queue(std::vector<std::byte> frame) {
    if (ended_) return;
    queued_bytes_ += frame.size();
    if (queued_bytes_ > kMostQueuedBytes) return End("the other side does not read");
    std::vector<std::byte> bytes(4);
    for (size_t i = 0; i < 4; ++i) {
      bytes[i] = static_cast<std::byte>((frame.size() >> (8 * i)) & 0xff);
    }
    bytes.insert(bytes.end(), frame.begin(), frame.end());
    queue_.push_back(std::move(bytes));
    if (queue_.size() == 1) Write();
  }

  void Write() {
    asio::async_write(socket_, asio::buffer(queue_.front()),
                      [self = shared_from_this()](error_code error, size_t) {
                        if (error) return self->End(error.message());
                        self->queued_bytes_ -= self->queue_.front().size() - 4;
                        self->queue_.pop_front();
                        if (!self->queue_.empty()) self->Write();
                      });
  }

  tcp::socket socket_;
  asio::steady_timer silence_;
  const std::string peer_;
  OnFrame on_frame_;
  OnEnd on_end_;
  bool ended_ = false;
  std::string why_;
  std::array<std::byte, 4> length_{};
  std::vector<std::byte> body_;
  std::deque<std::vector<std::byte>> queue_;
  size_t queued_bytes_ = 0;
};

}  // namespace

struct FrameLoop::State {
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  std::vector<std::unique_ptr<tcp::acceptor>> acceptors;
  std::vector<std::unique_ptr<asio::steady_timer>> timers;
  std::mutex mutex;
  std::set<std::weak_ptr<TcpConnection>, std::owner_less<std::weak_ptr<TcpConnection>>>
      connections;      // Guarded by mutex
  bool ending = false;  // The loop thread's own
  std::thread thread;   // Sockets block nobody else

  std::shared_ptr<TcpConnection> Hold(tcp::socket socket) {
    auto connection = std::make_shared<TcpConnection>(std::move(socket));
    const std::lock_guard lock(mutex);
    std::erase_if(connections, [](const auto& held) { return held.expired(); });
    connections.insert(connection);
    return connection;
  }

  std::vector<std::shared_ptr<TcpConnection>> Open() {
    const std::lock_guard lock(mutex);
    std::vector<std::shared_ptr<TcpConnection>> open;
    for (const auto& held : connections) {
      if (auto connection = held.lock()) open.push_back(std::move(connection));
    }
    return open;
  }

  void Accept(tcp::acceptor& acceptor, const OnAccept& accept) {
    acceptor.async_accept([this, &acceptor, accept](error_code error, tcp::socket socket) {
      if (ending || error == asio::error::operation_aborted) return;
      if (!error) accept(Hold(std::move(socket)));
      Accept(acceptor, accept);
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

FrameLoop::FrameLoop() : state_(std::make_unique<State>()) {
  state_->thread = std::thread([io = &state_->io] { io->run(); });
}

// What has come due already is called without an error although it is cancelled here: `ending`
// keeps it from beginning anew.
FrameLoop::~FrameLoop() {
  asio::post(state_->io, [this] {
    state_->ending = true;
    for (const auto& connection : state_->Open()) connection->End("this process ends");
    for (const auto& acceptor : state_->acceptors) acceptor->close();
    for (const auto& timer : state_->timers) timer->cancel();
    state_->work.reset();
  });
  state_->thread.join();
}

void FrameLoop::Start(const std::shared_ptr<FrameConnection>& connection,
                      FrameConnection::OnFrame frame, FrameConnection::OnEnd end) {
  std::static_pointer_cast<TcpConnection>(connection)->Start(std::move(frame), std::move(end));
}

Result<int> FrameLoop::Listen(const std::string& host, int port, OnAccept accept) {
  error_code error;
  const auto address = asio::ip::make_address(host, error);
  if (error) {
    return Error{Code::kInvalidArgument, Format("'{}' is not an address to listen on", host)};
  }
  auto acceptor = std::make_unique<tcp::acceptor>(state_->io);
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
  asio::post(state_->io, [this, owned = std::move(acceptor), accept]() mutable {
    state_->acceptors.push_back(std::move(owned));
    state_->Accept(*state_->acceptors.back(), accept);
  });
  return bound;
}

Result<std::shared_ptr<FrameConnection>> FrameLoop::Connect(const std::string& host, int port,
                                                            Seconds timeout) {
  tcp::resolver resolver(state_->io);
  error_code error;
  const auto ends = resolver.resolve(host, std::to_string(port), error);
  if (error) return Error{Code::kUnavailable, Format("{}: {}", host, error.message())};
  struct Attempt {
    explicit Attempt(asio::io_context& io) : socket(io) {}
    tcp::socket socket;
    std::mutex mutex;
    std::condition_variable done;
    std::optional<error_code> result;
  };
  const auto attempt = std::make_shared<Attempt>(state_->io);
  asio::async_connect(attempt->socket, ends, [attempt](error_code result, const tcp::endpoint&) {
    const std::lock_guard lock(attempt->mutex);
    attempt->result = result;
    attempt->done.notify_one();
  });
  std::unique_lock lock(attempt->mutex);
  if (!attempt->done.wait_for(lock, Duration(timeout),
                              [&] { return attempt->result.has_value(); })) {
    asio::post(state_->io, [attempt] {
      error_code ignored;
      attempt->socket.close(ignored);
    });
    return Error{Code::kUnavailable, Format("{}:{} does not answer", host, port)};
  }
  if (*attempt->result) {
    return Error{Code::kUnavailable,
                 Format("cannot reach {}:{}: {}", host, port, attempt->result->message())};
  }
  return std::shared_ptr<FrameConnection>(state_->Hold(std::move(attempt->socket)));
}

void FrameLoop::Post(std::function<void()> fn) { asio::post(state_->io, std::move(fn)); }

void FrameLoop::Every(Seconds every, std::function<void()> fn) {
  asio::post(state_->io, [this, every, fn = std::move(fn)] {
    state_->timers.push_back(std::make_unique<asio::steady_timer>(state_->io));
    state_->Repeat(*state_->timers.back(), every, fn);
  });
}

}  // namespace divisi
