#include "divisi/plan/state_transfer.h"

#include <algorithm>

#include "divisi/plan/flow.h"
#include "divisi/plan/waiting.h"

namespace divisi {

std::vector<TransferMoment> MomentsOf(const SerialTransfers& transfer, const TransferLink& link) {
  const Bytes state = transfer.payload;
  const Seconds end = transfer.Total(link);
  return {{"before", Seconds(0), state, Bytes(0)},
          {"during", Seconds(0), state, state},
          {"written", end, state, state},
          {"released", end, Bytes(0), state}};
}

double HeldTwiceByteSeconds(const SerialTransfers& transfer, const TransferLink& link) {
  const double parts = transfer.launches;
  return static_cast<double>(transfer.payload.value) * transfer.Total(link).value * (parts + 1) /
         (2 * parts);
}

BytesPerSecond TransferStream::Growth() const {
  return BytesPerSecond(std::max(0.0, (Needed() - link).value));
}

Seconds TransferStream::MeanWait() const {
  return WaitOfFixedService(rate, {.servers = 1, .rate = Most()});
}

Seconds TransferStream::Drain(double states) const {
  if (states <= 0) return Seconds(0);
  const double spare = (Most() - rate).value;
  return spare > 0 ? Seconds(states / spare) : kNever;
}

}  // namespace divisi
