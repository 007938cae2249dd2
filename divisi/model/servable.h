// What the transformer can run, of what a ModelSpec can say. Planning and inspection take more.
#pragma once

#include "divisi/catalog/model_spec.h"

namespace divisi {

// Errors: kUnimplemented for experts, latent attention and quantised weights; the message says
// which families can be served.
Result<void> CheckServable(const ModelSpec& spec);

}  // namespace divisi
