// Attention on one machine, feed-forward layers on another: activations cross the link there and
// back in each layer of each step. Against that stands one transfer of the request's whole state
// (prefill and decode apart). Few bytes and many launches against many bytes and one launch.
#pragma once

#include "divisi/core/result.h"
#include "divisi/core/units.h"

namespace divisi {

// A path of bytes, one direction, with the fixed cost of each transfer (alpha).
struct TransferLink {
  BytesPerSecond bandwidth;
  Seconds launch;
};

// Transfers that follow each other.
struct SerialTransfers {
  Bytes payload;  // Of all of them together.
  double launches = 0;

  Seconds Payload(const TransferLink& link) const { return payload / link.bandwidth; }
  Seconds Total(const TransferLink& link) const { return Payload(link) + launches * link.launch; }
};

// What a model sends: one vector of `hidden` elements per token, `per_layer` times in each layer.
struct ActivationRoute {
  double layers = 0;
  double hidden = 0;
  double element_bytes = 2;
  double per_layer = 2;  // There and back.
};

// One pass over `tokens` tokens (a decode step of one request: 1): n = layers per_layer transfers
// of tokens * hidden * element_bytes each. Source: example 9.4. Errors: kInvalidArgument and
// kOutOfRange for counts that are not positive or too large.
Result<SerialTransfers> ActivationTransfers(const ActivationRoute& route, double tokens);

// The launch cost at which a step's transfers take as long as the state in one transfer:
//   alpha* = (V_KV - V_AF) / ((n - 1) B)
// Above it the state's one transfer is faster than a single step. Minus infinity where the step's
// payload alone takes longer, infinity for a step of one transfer that carries less.
// Source: section 9.3.4, equation of alpha*.
Seconds BreakEvenLaunch(Bytes state, const SerialTransfers& step, BytesPerSecond bandwidth);

}  // namespace divisi
