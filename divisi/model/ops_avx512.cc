// Compiled for AVX-512 (F, BW, CD, DQ, VL) (CMakeLists.txt). Nothing here may be an inline function
// that other files share: the linker could pick this file's copy for a machine that lacks them.
#include "divisi/model/ops_lanes_highway.h"
#include "divisi/model/ops_table.h"

namespace divisi {

const Kernels kAvx512Kernels = MakeKernels<HighwayLanes>();

}  // namespace divisi
