// From a command's options to the KV tiers of a process.
#pragma once

#include <memory>
#include <optional>

#include "divisi/cli/model_setup.h"
#include "divisi/cli/serve_options.h"
#include "divisi/control/frame_connection.h"
#include "divisi/core/log.h"
#include "divisi/engine/tier_driver.h"

namespace divisi {

// As objects of the model's pages have it.
PageShape PageShapeOf(const KvLayout& layout);

// None where the options name no tier. The model and the logger outlive the tiers.
// tls: for the nodes of the pool, and other workers.
// Errors: kInvalidArgument for a size that can't be read, or a disk without host memory to stage
// its pages; those of TierDriver::Open and OpenPool. Each names the option.
Result<std::unique_ptr<TierDriver>> OpenTiers(const ServeOptions& options,
                                              const std::optional<TlsFiles>& tls,
                                              ServedModel& model, Logger& logger);

}  // namespace divisi
