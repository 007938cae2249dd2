// The KV tiers below the device of one process, as Prometheus reads them.
#pragma once

#include <string>
#include <string_view>

#include "divisi/engine/engine.h"

namespace divisi {

// labels: of each sample, model_name="...".
void AppendTierMetrics(const PrefixLoaderStats& prefixes, const TierDriverStats& driver,
                       std::string_view labels, std::string& out);

}  // namespace divisi
