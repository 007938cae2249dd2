// What the system says about this process and the memory it may use.
#pragma once

#include "divisi/core/units.h"

namespace divisi {

// Memory of this process that is in RAM, file mappings included; 0 where the system does not say.
Bytes ResidentMemory();

// The machine's memory, or the limit of the control group (container) that the process is in, where
// that is less.
Bytes MachineMemory();

// Memory that the system can give without swapping; 0 where it does not say.
Bytes AvailableMemory();

}  // namespace divisi
