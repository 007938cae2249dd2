// How much memory this process may use.
#pragma once

#include "divisi/core/units.h"

namespace divisi {

// The machine's memory, or the limit of the control group (container) that the process is in, where
// that is less.
Bytes MachineMemory();

}  // namespace divisi
