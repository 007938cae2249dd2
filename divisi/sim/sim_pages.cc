#include "divisi/sim/sim_pages.h"

#include <algorithm>
#include <vector>

namespace divisi {

void SimPages::Write(NodeId from, const PageWrite& write) {
  schedule_.In(Seconds(random_.Exponential(weather_.write_delay.value)),
               [this, from, write] { Land(from, write); });
}

void SimPages::Part(const SimWorker& a, const SimWorker& b, Seconds length) {
  const Pair pair = std::minmax(&a, &b);
  parted_.insert(pair);
  schedule_.In(length, [this, pair] { parted_.erase(pair); });
}

// A card goes on with what it was told, for seconds at times: only a fence keeps it out.
void SimPages::LandLate(SimWorker& target, NodeId from, const PageWrite& write) {
  const std::vector<std::byte> junk(SimExecutor::PageBytes(), std::byte{0x5a});
  target.executor().WritePage(write.to_page, junk);
  if (!random_.Chance(0.9)) return;
  schedule_.In(Seconds(random_.Uniform()), [this, from, write] { Land(from, write); });
}

void SimPages::Land(NodeId from, const PageWrite& write) {
  SimWorker* source = find_(from);
  SimWorker* target = find_(write.to);
  const bool barred = target == nullptr || target->Bars(from);
  if (source == nullptr) {
    ++late_writes_;
    if (!barred) LandLate(*target, from, write);
    return;
  }
  const bool ok = !barred && source->Knows(write.to) &&
                  !parted_.contains(std::minmax<const SimWorker*>(source, target));
  if (ok) {
    target->executor().WritePage(write.to_page, source->executor().ReadPage(write.from_page));
  }
  const Seconds answer = ok ? Seconds(random_.Exponential(weather_.delay.value)) : Seconds(0.3);
  schedule_.In(answer, [this, from, write, ok] {
    if (SimWorker* writer = find_(from)) writer->core().WriteDone(write.id, ok, schedule_.now());
  });
}

}  // namespace divisi
