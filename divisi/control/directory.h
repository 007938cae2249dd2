// The directory of a cluster's members, whatever keeps it (etcd, or a simulation): what happens
// there, and what a process asks of it. Keys are those of member_keys.h.
#pragma once

#include <string>
#include <variant>

namespace divisi {

struct DirectoryEvent {
  enum class Kind {
    kPut,   // The key is there, with this value.
    kGone,  // It is no longer.
    kUp,    // All that there is has been told, and what changes will be.
    kDown,  // Until kUp nothing is known.
  };
  Kind kind = Kind::kPut;
  std::string key;
  std::string value;
};

// From now on the key is there while this process lives. Asked for again nothing happens.
struct KeepAction {
  std::string key;
  std::string value;
};
// And no longer.
struct DropAction {
  std::string key;
};
// The key is to be written, unless `absent` or anything that begins with `none_of` is there. Once:
// whoever asked looks for the key, and asks again.
struct DeclareAction {
  std::string key;
  std::string absent;
  std::string none_of;
};
using DirectoryAction = std::variant<KeepAction, DropAction, DeclareAction>;

}  // namespace divisi
