// The directory of a cluster's members in etcd: EtcdSession over HTTP, in a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "divisi/control/etcd_session.h"
#include "divisi/core/clock.h"
#include "divisi/core/log.h"
#include "divisi/core/result.h"

namespace divisi {

// Where etcd is, and the cluster's name there.
struct EtcdOptions {
  std::vector<std::string> endpoints;  // "http://10.0.0.5:2379"; the next is asked where one fails
  std::string cluster = "default";
  Seconds lease{5};
};

class EtcdDirectory {
 public:
  // From the directory's thread.
  using OnEvent = std::function<void(const DirectoryEvent& event)>;

  // watched: as EtcdSessionOptions. clock and logger outlive the result. etcd need not be there
  // yet. Errors: kInvalidArgument for an endpoint or a name that is none.
  static Result<std::unique_ptr<EtcdDirectory>> Open(const EtcdOptions& options,
                                                     const std::string& watched, const Clock& clock,
                                                     Logger& logger);
  // Takes this process's keys away, where etcd answers within a second.
  ~EtcdDirectory();

  // Once; no event comes before.
  void Start(OnEvent event);
  // Does what a core asks for. As of EtcdSession; from any thread.
  void Do(DirectoryAction action);
  void Keep(const std::string& key, std::string value);
  void Drop(const std::string& key);
  void Declare(const std::string& key, const std::string& absent, const std::string& none_of);

 private:
  struct State;
  explicit EtcdDirectory(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace divisi
