#include "divisi/plan/worker_cost.h"

#include <algorithm>
#include <cmath>

namespace divisi {
namespace {

// The share of a pass that one card of a worker does.
class CardShare {
 public:
  CardShare(const ModelSpec& model, const CardGroup& group)
      : dense_(group.tensor_parallel),
        experts_(group.CardsPerWorker()),
        // The latent of MLA belongs to all heads, so that it is repeated.
        state_(model.mla ? 1 : std::min(group.tensor_parallel, model.kv_heads)) {}

  // all: the whole pass, of which `experts` is the routed experts' part and `state` bytes are KV.
  Work Of(const Work& all, const Work& experts, Bytes state) const {
    const Bytes dense = all.bytes - experts.bytes - state;
    return {.flops = (all.flops - experts.flops) / dense_ + experts.flops / experts_,
            .bytes = Scale(dense, 1 / dense_) + Scale(experts.bytes, 1 / experts_) + State(state)};
  }
  Bytes State(Bytes state) const { return Scale(state, 1 / state_); }
  Bytes Weights(const ModelCost& cost) const {
    const Bytes experts = cost.ResidentExperts();
    return Scale(cost.ResidentWeights() - experts, 1 / dense_) + Scale(experts, 1 / experts_);
  }

 private:
  double dense_, experts_, state_;
};

DeviceRates PrefillRates(const CardGroup& group, Storage storage) {
  // Weights of a byte multiply on the card's 8-bit units where it has them.
  const bool fp8 = storage.weight_bytes <= 1 && group.card.fp8_peak.value > 0;
  const FlopsPerSecond peak = fp8 ? group.card.fp8_peak : group.card.bf16_peak;
  return {.compute = peak * group.efficiency.prefill_compute,
          .memory = group.card.memory_bandwidth * group.efficiency.prefill_memory};
}

DeviceRates DecodeRates(const CardGroup& group, Storage storage, double batch) {
  DeviceRates rates = PrefillRates(group, storage);
  rates.compute =
      rates.compute * (group.efficiency.decode_compute / group.efficiency.prefill_compute);
  rates.memory = group.card.memory_bandwidth * group.efficiency.decode_memory.At(batch);
  return rates;
}

Bytes StatePerToken(const Scenario& scenario, const ModelCost& model) {
  return scenario.state ? scenario.state->bytes_per_token : model.state_per_token;
}

// Everything that costs of the classes share.
struct Device {
  const Scenario& scenario;
  ModelCost model;
  CardShare share;
  DeviceRates prefill;
  DeviceRates decode;
};

StageTime PrefillTime(const Device& device, const RequestClass& request) {
  const Tokens tokens = request.NewTokens();
  const Work all = device.model.Prefill(tokens, request.cached_prefill);
  const Work experts = device.model.ExpertPart(static_cast<double>(tokens.value));
  return TimeOf(device.share.Of(all, experts, Bytes(0)), device.prefill);
}

StageTime StepTime(const Device& device, const RequestClass& request) {
  const double batch = device.scenario.workload.decode_batch;
  Work all = device.model.DecodeStep(batch, request.MeanContext());
  const Work experts = device.model.ExpertPart(batch);
  Bytes state = all.bytes - device.model.WeightsRead(batch);
  const auto& other = device.scenario.state;
  if (other && other->decode_reads) {
    const Bytes replaced = Bytes(std::llround(batch * request.MeanContext() *
                                              static_cast<double>(other->bytes_per_token.value)));
    all.bytes += replaced - state;
    state = replaced;
  }
  return TimeOf(device.share.Of(all, experts, state), device.decode);
}

void RideOnDecode(const Device& device, const RequestClass& request, ClassCost& cost) {
  const auto calls = static_cast<double>(request.DecodeCalls().value);
  const double batch = device.scenario.workload.decode_batch;
  const Seconds compute = cost.prefill.compute + cost.step.compute * (calls / batch);
  const Seconds memory = cost.prefill.memory + cost.step.memory * (calls / batch);
  const Seconds ideal = std::max(compute, memory) + cost.added_step * (calls / batch);
  const Seconds serial = cost.prefill_busy + cost.decode_busy;
  cost.mixed_busy = serial - (serial - ideal) * device.scenario.chunked_overlap.value_or(1);
  if (calls == 0) return;
  const auto tokens = static_cast<double>(request.NewTokens().value);
  const Seconds idle = cost.step.Total() - cost.step.compute;
  cost.chunk_tokens = idle.value / (cost.prefill.compute.value / tokens);
  if (cost.chunk_tokens < 1) return;
  cost.chunks = static_cast<int64_t>(std::ceil(tokens / cost.chunk_tokens));
}

ClassCost CostOfClass(const Device& device, const RequestClass& request) {
  const auto calls = static_cast<double>(request.DecodeCalls().value);
  const double batch = device.scenario.workload.decode_batch;
  ClassCost cost;
  cost.prefill = PrefillTime(device, request);
  cost.prefill_busy = cost.prefill.Total();
  if (calls > 0) {
    cost.step = StepTime(device, request);
    const double query = device.scenario.state ? device.scenario.state->query_flops : 0;
    // Each request of the batch adds its own query work to the step.
    cost.added_step = Flops(query * batch) / device.decode.compute;
    cost.decode_busy = cost.Step() * (calls / batch);
  }
  RideOnDecode(device, request, cost);
  return cost;
}

Bytes Most(const Scenario& scenario, Tokens (*length)(const RequestClass&), Bytes per_token) {
  Tokens most;
  for (const RequestClass& request : scenario.workload.classes) {
    most = std::max(most, length(request));
  }
  return per_token * most.value;
}

}  // namespace

Seconds SpareOfCall(Seconds decode_busy, Tokens calls, const DecodePool& pool) {
  const Seconds held(pool.workers / pool.arrivals.value);
  return std::max(Seconds(0), held - decode_busy) / static_cast<double>(calls.value);
}

Bytes TransferOf(const Scenario& scenario, const RequestClass& request) {
  if (request.DecodeCalls().value == 0) return Bytes(0);
  const ModelCost model(scenario.model, scenario.storage);
  return StatePerToken(scenario, model) * (request.input - request.cached_decode).value;
}

WorkerCost CostOfWorker(const Scenario& scenario, const CardGroup& group) {
  const double batch = scenario.workload.decode_batch;
  const Device device{scenario, ModelCost(scenario.model, scenario.storage),
                      CardShare(scenario.model, group), PrefillRates(group, scenario.storage),
                      DecodeRates(group, scenario.storage, batch)};
  WorkerCost worker;
  const double weights = scenario.TotalWeight();
  for (const RequestClass& request : scenario.workload.classes) {
    const ClassCost cost = CostOfClass(device, request);
    const double share = request.weight / weights;
    worker.prefill_busy += cost.prefill_busy * share;
    worker.decode_busy += cost.decode_busy * share;
    worker.mixed_busy += cost.mixed_busy * share;
    worker.classes.push_back(cost);
  }
  const Bytes per_token = device.share.State(StatePerToken(scenario, device.model));
  const Bytes prompt = Most(
      scenario, [](const RequestClass& r) { return r.input; }, per_token);
  const Bytes last = Most(
      scenario, [](const RequestClass& r) { return r.LastContext(); }, per_token);
  MemoryNeed need{.weights = device.share.Weights(device.model), .capacity = group.card.memory};
  worker.as_prefill = need;
  worker.as_prefill.buffers = prompt * 2;
  need.state = Scale(last, batch);
  worker.as_replica = need;
  need.buffers = prompt;
  worker.as_decode = need;
  const Evidence known = group.efficiency.calibrated ? Evidence::kCalibrated : Evidence::kDerived;
  worker.prefill_evidence = known;
  worker.decode_evidence =
      group.efficiency.decode_memory.Extrapolates(batch) ? Evidence::kExtrapolated : known;
  return worker;
}

}  // namespace divisi
