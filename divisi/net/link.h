// What a network gives a transport: numbered connections, and messages of a header with bytes after
// it that are placed where the receiver says. UcxLink is the real one, MemoryNetwork's the modelled
// one; link_transport.h makes a Transport of either.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "divisi/core/result.h"
#include "divisi/core/units.h"

namespace divisi {

using LinkId = uint64_t;  // Of one connection, in one process; never reused, and growing.

struct LinkEvent {
  enum class Kind {
    kAccepted,  // A new connection from elsewhere.
    kMessage,   // `header`, and its `bytes` are in place, or with !ok are not.
    kSent,      // The bytes of Send's `token` are free for other use.
    kClosed,    // The last of this connection: nothing of it is read or written any more.
  };
  Kind kind = Kind::kMessage;
  LinkId link = 0;
  uint64_t token = 0;
  bool ok = true;
  size_t bytes = 0;
  std::string header;
  std::string reason;  // Of kClosed.
};

// One process's connections. One thread makes every call.
class Link {
 public:
  // Where the bytes behind this header go; nullptr drops them, and no kMessage comes. Must not call
  // back.
  using Place = std::function<std::byte*(LinkId, std::string_view header, size_t bytes)>;

  virtual ~Link() = default;

  virtual const std::string& address() const = 0;
  // Pins memory for the network card, where there is one. It must outlive the Link.
  virtual Result<void> Register(std::span<std::byte> memory) = 0;

  // A connection that can't be made is kClosed later. Errors: kInvalidArgument for no address.
  virtual Result<LinkId> Dial(const std::string& address) = 0;
  // `body` is borrowed until kSent, which comes exactly once, or until kClosed. After Close, or on
  // a connection that is gone, kSent is not ok.
  virtual void Send(LinkId link, std::string header, std::span<const std::byte> body,
                    uint64_t token) = 0;
  // Ends a connection at once; kClosed follows. Of one that is closed or closing: nothing.
  virtual void Close(LinkId link, const std::string& reason) = 0;
  // Connections that have not had their kClosed.
  virtual size_t open_links() const = 0;

  // Moves what can be moved. Events in order.
  virtual std::vector<LinkEvent> Progress(const Place& place) = 0;
  // True: fd() becomes readable with the next work. False: Progress has work now.
  virtual bool Arm() = 0;
  virtual int fd() const = 0;
  // When Progress is due though nothing makes fd() readable, in the clock's time.
  virtual std::optional<Seconds> NextDue() const = 0;
};

}  // namespace divisi
