// A request's state on its way from prefill to decode: what both ends hold meanwhile, and what a
// stream of such transfers does to a link. Source: section 9.2.2.
#pragma once

#include <vector>

#include "divisi/core/units.h"
#include "divisi/plan/activation_transfer.h"

namespace divisi {

// A moment of one transfer, and what each end holds of the state then.
struct TransferMoment {
  const char* name;  // "before", "during", "written", "released"
  Seconds time;      // From the start of the transfer.
  Bytes source;
  Bytes target;
};

// A transfer that both ends hold whole: the receiver's buffer is there from the start, the source
// is released only when the receiver has taken over.
std::vector<TransferMoment> MomentsOf(const SerialTransfers& transfer, const TransferLink& link);

// Byte-seconds by which memory is held twice. The receiver's buffer is whole from the start; of n
// equal parts the source releases each as it arrives, so that on average (n + 1) / 2n of the state
// is held beside it:  V T (n + 1) / 2n.   Of one part it is V T. Requires: launches >= 1.
double HeldTwiceByteSeconds(const SerialTransfers& transfer, const TransferLink& link);

// States of one size that follow each other over a link, at random. Launches are not counted: that
// of one transfer hides behind the bytes of the one before.
struct TransferStream {
  Bytes state;     // Above 0.
  PerSecond rate;  // Of states.
  BytesPerSecond link;

  BytesPerSecond Needed() const { return state * rate; }
  PerSecond Most() const { return link / state; }  // States that the link carries.
  double Utilisation() const { return rate / Most(); }
  // By which the queue grows: 0 where the link keeps up.
  BytesPerSecond Growth() const;
  // Mean wait before a transfer starts, M/D/1 (waiting.h); infinite where the link does not keep
  // up.
  Seconds MeanWait() const;
  // Until the queue of `states` that come at once is gone again, the stream going on: a fluid,
  //   states / (B / V - rate).   kNever where nothing is left of the link.
  Seconds Drain(double states) const;
};

}  // namespace divisi
