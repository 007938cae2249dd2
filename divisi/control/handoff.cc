#include "divisi/control/handoff.h"

namespace divisi {

TransferId IdOf(const HandoffMessage& message) {
  return std::visit([](const auto& m) { return m.id; }, message);
}

}  // namespace divisi
