// What a request needs after its worker was lost: the token log says which sequence goes on, the
// last checkpoint of KV says from where computing is repeated. Source: section 9.6.3.
#pragma once

#include "divisi/core/units.h"
#include "divisi/plan/pass_cost.h"
#include "divisi/plan/stage.h"

namespace divisi {

// A request when its worker was lost.
struct Interrupted {
  Tokens prompt;      // >= 1
  Tokens returned;    // Output that the client has.
  Tokens logged;      // Of it, what is in the log: 0 to returned.
  Tokens checkpoint;  // Leading positions whose KV survives.
};

// What has to be done. Positions count from 0 through prompt and output.
struct Recovery {
  Tokens reused;       // KV of the checkpoint that serves
  Tokens replayed;     // known tokens whose KV one prefill computes again
  Tokens rebuilt;      // KV then: reused + replayed
  Tokens last;         // position of the known token that is processed next; it makes a new one
  Tokens regenerated;  // returned but not logged: decoded again, and perhaps other than before
};

// Of the known tokens, prompt and log, all but the last need KV; the last is what decoding goes on
// with. A checkpoint beyond them holds a sequence that nothing proves, and is cut to them.
Recovery RecoveryOf(const Interrupted& request);

// Seconds on one device.
struct RecoveryTime {
  Seconds replay;      // One prefill after the reused KV.
  Seconds last_step;   // The step of the last known token.
  Seconds regenerate;  // As many steps as the log lacks tokens: then one that the client lacks.
  // Until the first token that the client does not have.
  Seconds Total() const { return replay + last_step + regenerate; }
};
// Steps run in a batch of one.
RecoveryTime TimeOf(const Recovery& recovery, const ModelCost& model, const DeviceRates& rates);

}  // namespace divisi
