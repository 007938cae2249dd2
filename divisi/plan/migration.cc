#include "divisi/plan/migration.h"

#include "divisi/plan/flow.h"

namespace divisi {

GrowingState GrowingState::Of(const Decode& decode) {
  const double tokens = decode.batch * decode.context;
  const double tokens_per_second = decode.batch > 0 ? decode.batch / decode.step.value : 0;
  return {.bytes = Times(decode.state_per_token, tokens),
          .growth = decode.state_per_token * PerSecond(tokens_per_second)};
}

Seconds GrowingState::CatchUp(BytesPerSecond link) const {
  if (bytes.value <= 0) return Seconds(0);
  return link > growth ? bytes / (link - growth) : kNever;
}

Bytes GrowingState::AddedMeanwhile(BytesPerSecond link) const {
  return Flowed(growth, CatchUp(link));
}

Seconds Resharding::Transfer(BytesPerSecond link) const { return TimeToMove(moved, link); }

}  // namespace divisi
