// How the cards divide between prefill and decode: sections 9.2.3 and 9.2.4.
#pragma once

#include "divisi/cli/calc.h"

namespace divisi {

CalcTopic PdSplitTopic();

}  // namespace divisi
