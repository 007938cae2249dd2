// The kernels for any machine: slow, and what the others are compared with.
#include "divisi/model/ops_lanes_scalar.h"
#include "divisi/model/ops_table.h"

namespace divisi {

const Kernels kScalarKernels = MakeKernels<ScalarLanes>();

}  // namespace divisi
