// Compiled for AVX2 with FMA and F16C (CMakeLists.txt). Nothing here may be an inline function that
// other files share: the linker could pick this file's copy for a machine that lacks AVX2.
#include "divisi/model/ops_lanes_highway.h"
#include "divisi/model/ops_table.h"

namespace divisi {

const Kernels kAvx2Kernels = MakeKernels<HighwayLanes>();

}  // namespace divisi
