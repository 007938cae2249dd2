// Frames over a stream of Boost.Asio, plain or TLS. Part of frame_connection.cc.
#pragma once

#include <array>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "divisi/control/cluster_message.h"
#include "divisi/control/frame_connection.h"
#include "divisi/core/format.h"

namespace divisi::frame {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Every frame's length; the first bytes tell TLS from plain (frame_connection.cc).
inline constexpr size_t kLengthBytes = 4;
using FirstBytes = std::array<std::byte, kLengthBytes>;

inline std::chrono::nanoseconds Duration(Seconds time) {
  return std::chrono::nanoseconds(static_cast<int64_t>(time.value * 1e9));
}

inline std::vector<std::byte> WithLength(const std::vector<std::byte>& frame) {
  std::vector<std::byte> bytes(kLengthBytes);
  for (size_t i = 0; i < kLengthBytes; ++i) {
    bytes[i] = static_cast<std::byte>((frame.size() >> (8 * i)) & 0xff);
  }
  bytes.insert(bytes.end(), frame.begin(), frame.end());
  return bytes;
}

struct PeerAddress {
  std::string text = "?";
  bool loopback = false;
};

inline PeerAddress PeerOf(const tcp::socket& socket) {
  error_code error;
  const tcp::endpoint end = socket.remote_endpoint(error);
  if (error) return {};
  const std::string host = end.address().to_string();
  return {end.address().is_v6() ? Format("[{}]:{}", host, end.port())
                                : Format("{}:{}", host, end.port()),
          end.address().is_loopback()};
}

// What the loop ends when it ends.
class Ending {
 public:
  virtual ~Ending() = default;
  virtual void End(const std::string& why) = 0;
};

// A place among the strangers (frame_connection.h); whoever holds it gives it up in End.
class Stranger : public std::enable_shared_from_this<Stranger> {
 public:
  using All = std::list<Stranger*>;  // Oldest first

  Stranger(std::shared_ptr<All> all, const asio::any_io_executor& executor)
      : all_(std::move(all)), at_(all_->insert(all_->end(), this)), timer_(executor) {}
  ~Stranger() { all_->erase(at_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  void BeginToWait() {
    timer_.expires_after(Duration(kHelloTime));
    timer_.async_wait([weak = weak_from_this()](error_code error) {
      const auto self = error ? nullptr : weak.lock();
      if (self) self->EndWith("no hello came within " + HumanSeconds(kHelloTime));
    });
  }
  void Be(std::weak_ptr<Ending> who) { who_ = std::move(who); }
  void EndWith(const std::string& why) const {
    if (const auto who = who_.lock()) who->End(why);
  }

 private:
  const std::shared_ptr<All> all_;  // Connections may outlive their loop.
  const All::iterator at_;
  asio::steady_timer timer_;
  std::weak_ptr<Ending> who_;
};

// All members are the loop thread's own; what others call posts to it.
template <typename Stream>
class StreamConnection final : public FrameConnection,
                               public Ending,
                               public std::enable_shared_from_this<StreamConnection<Stream>> {
 public:
  // What its peer was found out to be while it arrived.
  struct Arrived {
    PeerAddress peer;
    size_t read = 0;  // Bytes of the first length that came already
    FirstBytes bytes{};
    std::shared_ptr<Stranger> stranger;
  };

  StreamConnection(std::shared_ptr<asio::io_context> io, Stream stream, Arrived arrived)
      : io_(std::move(io)),
        stream_(std::move(stream)),
        silence_(stream_.get_executor()),
        peer_(std::move(arrived.peer)),
        stranger_(std::move(arrived.stranger)),
        length_(arrived.bytes),
        length_read_(arrived.read) {
    error_code ignored;
    stream_.lowest_layer().set_option(tcp::no_delay(true), ignored);
  }

  void Start(OnFrame frame, OnEnd end) override {
    asio::post(stream_.get_executor(), [self = this->shared_from_this(), frame = std::move(frame),
                                        end = std::move(end)]() mutable {
      self->on_frame_ = std::move(frame);
      self->on_end_ = std::move(end);
      if (self->ended_) return self->TellEnd();
      self->ReadNext();
    });
  }
  void Send(std::vector<std::byte> frame) override {
    if (io_->stopped()) return;
    asio::post(stream_.get_executor(),
               [self = this->shared_from_this(), frame = std::move(frame)]() mutable {
                 self->Queue(std::move(frame));
               });
  }
  void Close(const std::string& why) override {
    if (io_->stopped()) return;
    asio::post(stream_.get_executor(),
               [self = this->shared_from_this(), why] { self->CloseWhenSent(why); });
  }
  void Welcome() override {
    Do([](StreamConnection& self) { self.stranger_.reset(); });
  }
  void Pause() override {
    Do([](StreamConnection& self) { self.paused_ = true; });
  }
  void Resume() override {
    Do([](StreamConnection& self) {
      self.paused_ = false;
      if (std::exchange(self.waiting_, false) && !self.ended_) self.ReadNext();
    });
  }
  const std::string& peer() const override { return peer_.text; }
  bool peer_is_loopback() const override { return peer_.loopback; }

  void End(const std::string& why) override {
    if (ended_) return;
    ended_ = true;
    why_ = why;
    error_code ignored;
    stream_.lowest_layer().close(ignored);
    silence_.cancel();
    stranger_.reset();
    TellEnd();
  }

 private:
  // In the loop's thread: at once, where this is it.
  template <typename Fn>
  void Do(Fn fn) {
    if (io_->stopped()) return;
    asio::dispatch(stream_.get_executor(), [self = this->shared_from_this(), fn] { fn(*self); });
  }

  void TellEnd() {
    if (!on_end_) return;
    on_frame_ = nullptr;
    std::exchange(on_end_, nullptr)(why_);
  }

  // What was sent before, a refusal say, still goes out; the other side's silence bounds it.
  void CloseWhenSent(const std::string& why) {
    if (queue_.empty()) return End(why);
    if (waiting_) WatchSilence();
    closing_ = true;
    why_ = why;
    on_frame_ = nullptr;
  }

  void WatchSilence() {
    if (closing_) return;  // What it still says does not keep it.
    silence_.expires_after(Duration(kSilence));
    silence_.async_wait([self = this->shared_from_this()](error_code error) {
      // After a pause of this process what came meanwhile is read first; this one's turn still
      // comes, though the timer was set anew.
      const bool silent =
          !error && self->silence_.expiry() <= asio::steady_timer::clock_type::now();
      if (silent) self->End("nothing was heard for " + HumanSeconds(kSilence));
    });
  }

  void ReadNext() {
    waiting_ = paused_ && !closing_;
    if (waiting_) return void(silence_.expires_at(asio::steady_timer::time_point::max()));
    WatchSilence();
    ReadLength();
  }

  void ReadLength() {
    const size_t have = std::exchange(length_read_, 0);
    asio::async_read(stream_, asio::buffer(length_.data() + have, kLengthBytes - have),
                     [self = this->shared_from_this()](error_code error, size_t) {
                       if (error) return self->End(error.message());
                       uint32_t length = 0;
                       for (size_t i = 0; i < kLengthBytes; ++i) {
                         length |= std::to_integer<uint32_t>(self->length_[i]) << (8 * i);
                       }
                       const uint32_t most = self->stranger_ ? kMostStrangerBytes : kMostFrameBytes;
                       if (length > most) return self->End("a frame beyond the bound");
                       self->ReadBody(length);
                     });
  }

  // In pieces: a length alone takes no memory, only bytes that came do.
  void ReadBody(uint32_t length) {
    constexpr size_t kPiece = size_t{64} << 10;
    const size_t have = body_.size();
    if (have == length) return Deliver();
    WatchSilence();  // The length was heard, or a piece, however long the whole takes.
    body_.resize(std::min<size_t>(length, have + kPiece));
    asio::async_read(stream_, asio::buffer(body_.data() + have, body_.size() - have),
                     [self = this->shared_from_this(), length](error_code error, size_t) {
                       if (error) return self->End(error.message());
                       self->ReadBody(length);
                     });
  }

  void Deliver() {
    if (on_frame_) on_frame_(std::move(body_));
    body_ = {};
    if (!ended_) ReadNext();
  }

  void Queue(std::vector<std::byte> frame) {
    if (ended_ || closing_) return;
    queued_bytes_ += frame.size();
    const bool alone = stranger_ && queue_.empty();
    const size_t most = stranger_ ? kMostStrangerQueuedBytes : kMostQueuedBytes;
    if (queued_bytes_ > most && !alone) return End("the other side does not read");
    queue_.push_back(WithLength(frame));
    if (queue_.size() == 1) Write();
  }

  void Write() {
    asio::async_write(stream_, asio::buffer(queue_.front()),
                      [self = this->shared_from_this()](error_code error, size_t) {
                        if (error) return self->End(error.message());
                        self->queued_bytes_ -= self->queue_.front().size() - kLengthBytes;
                        self->queue_.pop_front();
                        if (!self->queue_.empty()) return self->Write();
                        if (self->closing_) self->End(self->why_);
                      });
  }

  // First, so that it goes last: whoever holds a connection may do so for longer than the loop is.
  const std::shared_ptr<asio::io_context> io_;
  Stream stream_;
  asio::steady_timer silence_;
  const PeerAddress peer_;
  std::shared_ptr<Stranger> stranger_;  // While it is one
  OnFrame on_frame_;
  OnEnd on_end_;
  bool ended_ = false;
  bool closing_ = false;
  bool paused_ = false;
  bool waiting_ = false;  // With the next frame for Resume
  std::string why_;
  FirstBytes length_{};
  size_t length_read_ = 0;
  std::vector<std::byte> body_;
  std::deque<std::vector<std::byte>> queue_;
  size_t queued_bytes_ = 0;
};

}  // namespace divisi::frame
