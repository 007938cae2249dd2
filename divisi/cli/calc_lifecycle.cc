#include "divisi/cli/calc.h"

namespace divisi {

std::vector<CalcTopic> LifecycleTopics() { return {}; }

}  // namespace divisi
