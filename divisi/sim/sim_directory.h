// A simulated directory, as etcd is used: keys that are there while the process that keeps them
// lives, declarations, and who follows which keys. Each change takes a while to be written, and
// another to be heard of. It may be away for a while; what it holds then stays, and leases run on
// from its return.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "divisi/control/directory.h"
#include "divisi/core/random.h"
#include "divisi/core/units.h"
#include "divisi/sim/sim_schedule.h"

namespace divisi {

class SimDirectory {
 public:
  // From the end of a process to that of its keys.
  static constexpr Seconds kLease{2};
  // A process, by a number that is never used again.
  using Client = uint64_t;
  using OnEvent = std::function<void(const DirectoryEvent& event)>;

  // Both outlive this.
  SimDirectory(SimSchedule& schedule, Random& random) : schedule_(schedule), random_(random) {}

  bool up() const { return up_; }
  void Down();
  void Up();

  // It hears of every key that begins with `watched`.
  Client Join(std::string watched, OnEvent on_event);
  void Do(Client client, const DirectoryAction& action);
  // It takes its keys away.
  void Leave(Client client);
  // It is gone without a word.
  void Lost(Client client);

  // Keys that were declared.
  int64_t declared() const { return declared_; }

 private:
  struct Session {
    std::string watched;
    OnEvent on_event;                          // None: it is gone.
    std::map<std::string, std::string> kept;   // As it wants its keys to be
    std::map<std::string, std::string> known;  // As it knows what it follows
    bool told_up = false;
  };
  struct Key {
    std::string value;
    Client owner = 0;  // 0: it was declared.
  };

  void Write(Client client);
  void Declare(const DeclareAction& declare);
  void Expire(Client client);
  void Changed();
  void Tell(Client client);
  void TellDown(Client client, uint64_t outage);
  Session* Find(Client client);
  Seconds Soon() { return Seconds(random_.Exponential(0.005)); }

  SimSchedule& schedule_;
  Random& random_;
  bool up_ = true;
  uint64_t outage_ = 0;
  Client last_ = 0;
  std::map<Client, Session> sessions_;
  std::map<std::string, Key> keys_;
  int64_t declared_ = 0;
};

}  // namespace divisi
