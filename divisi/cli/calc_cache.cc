#include "divisi/cli/calc.h"

namespace divisi {

std::vector<CalcTopic> CacheTopics() { return {}; }

}  // namespace divisi
