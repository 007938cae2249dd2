// A worker's report in the bytes of a control connection; a part of cluster_message.cc.
#pragma once

#include "divisi/control/cluster_message.h"
#include "divisi/core/wire.h"

namespace divisi {

void Put(WireWriter& out, const ReportMessage& report);
// What is out of bounds, or too short, fails the reader.
void Get(WireReader& in, ReportMessage& report);

}  // namespace divisi
