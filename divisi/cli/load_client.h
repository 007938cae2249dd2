// An HTTP/1.1 client for load: thousands of exchanges at once on one thread, connections kept and
// reused, each piece of a response stamped with the time at which it was read. load_client.cc is
// the only file of cli/ that includes Boost.Asio and Beast.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "divisi/cli/load_request.h"
#include "divisi/core/result.h"
#include "divisi/core/units.h"

namespace divisi {

// Watches one exchange. All calls come from the thread in Run; OnEnd is the last and always comes.
class ExchangeWatcher {
 public:
  virtual ~ExchangeWatcher() = default;
  virtual void OnStatus(int status, Seconds now) = 0;
  // False: the client goes away at once (OnEnd then says kCancelled).
  virtual bool OnBody(std::string_view bytes, Seconds now) = 0;
  // Success: the response came whole.
  // Errors: kUnavailable when no connection could be made; kDataLoss when the server closed it
  // midway; kDeadlineExceeded; kInvalidArgument for what is no HTTP; kCancelled.
  virtual void OnEnd(const Result<void>& outcome, Seconds now) = 0;
};

struct HttpReply {
  int status = 0;
  std::string body;
};

class LoadClient {
 public:
  struct Options {
    Seconds connect_timeout{10};
    // From one byte to the next: beyond it the exchange fails with kDeadlineExceeded.
    Seconds silence_timeout{120};
  };

  // Finds the address of the server; does not connect yet.
  // Errors: kUnavailable when the name has no address.
  static Result<std::unique_ptr<LoadClient>> Create(const HttpAddress& address, Options options);
  ~LoadClient();

  // Sends `text` on an idle or a new connection. Where the server had closed the idle one, it is
  // sent once more on a new one: completions that never began may be sent twice.
  struct SendOptions {
    Seconds give_up_after;        // When above zero, the client leaves after this time.
    bool own_connection = false;  // A new connection, closed afterwards.
  };
  void Send(std::string text, std::unique_ptr<ExchangeWatcher> watcher, SendOptions options);

  // Calls `call` once in Run, after `delay`; never once Quit was called.
  void After(Seconds delay, std::function<void()> call);

  // Works until Quit. on_interrupt: called at Ctrl-C, when given.
  void Run(std::function<void()> on_interrupt = {});
  void Quit();

  // Ends every running exchange with kCancelled, within this call.
  void CancelAll();

  // The clock of `now` in the watcher's calls.
  Seconds Now() const;

  // One exchange, waited for. Errors: as ExchangeWatcher::OnEnd; kOutOfRange beyond kMaxReplyBytes.
  // Requires: Run is not active.
  Result<HttpReply> Fetch(std::string text);
  static constexpr size_t kMaxReplyBytes = 16 << 20;

 private:
  struct State;
  explicit LoadClient(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Raises the process's limit of open files to hold `connections` besides a reserve for the rest.
// Errors: kResourceExhausted naming the limit and how to raise it.
Result<void> AllowConnections(int64_t connections);

}  // namespace divisi
