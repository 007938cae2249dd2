// The part of a request that both endpoints share: sampling, stopping, streaming.
#pragma once

#include "divisi/serve/openai_fields.h"
#include "divisi/serve/openai_request.h"

namespace divisi {

// Errors are recorded in `fields`. logprobs and max_tokens, whose meanings differ between the
// endpoints, are left to the caller.
GenerationRequest ReadGeneration(RequestFields& fields, const GenerationDefaults& defaults);

}  // namespace divisi
