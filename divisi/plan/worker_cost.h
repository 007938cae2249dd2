// What one worker of a group needs per request: time of each stage, and memory.
#pragma once

#include <vector>

#include "divisi/plan/scenario.h"
#include "divisi/plan/stage.h"

namespace divisi {

// Requests of one class on one worker.
struct ClassCost {
  StageTime prefill;   // Of one prompt.
  StageTime step;      // Of one decode step of the scenario's batch.
  Seconds added_step;  // Of each step, where a state override adds query work that nothing hides.
  // Time of the worker that a request takes: GPU-seconds where a worker is one GPU.
  Seconds prefill_busy;
  Seconds decode_busy;  // calls * step / batch
  // Prefill in chunks that ride on decode steps, the ideal bound: compute of both against bytes of
  // both, the larger. Source: section 9.2.3; derivations "Mixed steps".
  Seconds mixed_busy;
  // Prompt tokens that a step leaves room for while its bytes move; how many steps a prompt takes.
  // Where less than a token fits, chunks is 0: nothing rides.
  double chunk_tokens = 0;
  int64_t chunks = 0;

  Seconds Step() const { return step.Total() + added_step; }
  // Until the prompt's last chunk is through; prefill on its own where nothing rides.
  Seconds FirstTokenByChunks() const { return chunks > 0 ? Step() * chunks : prefill_busy; }
};

// Memory of one card of the worker.
struct MemoryNeed {
  Bytes weights;
  Bytes state;    // Of running requests.
  Bytes buffers;  // States on their way.
  Bytes capacity;
  Bytes Total() const { return weights + state + buffers; }
  bool Fits() const { return Total() <= capacity; }
};

struct WorkerCost {
  std::vector<ClassCost> classes;  // As the workload's.
  // Means over the classes, by their weights.
  Seconds prefill_busy;
  Seconds decode_busy;
  Seconds mixed_busy;
  MemoryNeed as_replica;  // weights + batch states at their end
  MemoryNeed as_prefill;  // weights + a state being computed and one being sent
  MemoryNeed as_decode;   // weights + batch states at their end + a receive buffer
  Evidence prefill_evidence = Evidence::kDerived;
  Evidence decode_evidence = Evidence::kDerived;
};

// Requires: CheckScenario(scenario) is good; group is one of its groups.
WorkerCost CostOfWorker(const Scenario& scenario, const CardGroup& group);

// Like workers that decode for `arrivals`.
struct DecodePool {
  int workers = 1;
  PerSecond arrivals;
};
// What every call of a request could take longer before the pool no longer holds its arrivals:
//   (n / lambda - d_D) / calls,   0 where it does not hold them now.
// Requires: arrivals and calls above 0. Source: section 9.2.3, the 258 us of a fifth card.
Seconds SpareOfCall(Seconds decode_busy, Tokens calls, const DecodePool& pool);

// Bytes of one request's state that go from prefill to decode; 0 where nothing is decoded.
Bytes TransferOf(const Scenario& scenario, const RequestClass& request);

}  // namespace divisi
