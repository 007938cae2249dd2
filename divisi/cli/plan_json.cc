#include "divisi/cli/plan_json.h"

#include <cmath>
#include <optional>

namespace divisi {
namespace {

// Infinite and unknown numbers are null.
Json NumberOrNull(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

template <typename Quantity>
Json ValueOrNull(const std::optional<Quantity>& value) {
  return value ? NumberOrNull(value->value) : Json(nullptr);
}
Json CountOrNull(const std::optional<int>& count) { return count ? Json(*count) : Json(nullptr); }

double Gigabytes(BytesPerSecond rate) { return rate.value / 1e9; }

Json PrefillCards(const Scenario& scenario, const Candidate& candidate) {
  Json cards = Json::MakeObject();
  for (size_t i = 0; i < scenario.groups.size(); ++i) {
    const CardGroup& group = scenario.groups[i];
    cards.Set(group.name, candidate.prefill_workers[i] * group.CardsPerWorker());
  }
  return cards;
}

Json DecodeCards(const Scenario& scenario, const Candidate& candidate) {
  Json cards = Json::MakeObject();
  const bool pools = candidate.prefill_rate.has_value();
  for (size_t i = 0; i < scenario.groups.size(); ++i) {
    const CardGroup& group = scenario.groups[i];
    const int prefill = pools ? candidate.prefill_workers[i] * group.CardsPerWorker() : 0;
    cards.Set(group.name, group.count - prefill);
  }
  return cards;
}

Json MemoryJson(const Scenario& scenario, const std::vector<MemoryNeed>& needs) {
  Json all = Json::MakeObject();
  for (size_t i = 0; i < needs.size(); ++i) {
    Json need = Json::MakeObject();
    need.Set("weights_bytes", needs[i].weights.value);
    need.Set("state_bytes", needs[i].state.value);
    need.Set("buffer_bytes", needs[i].buffers.value);
    need.Set("total_bytes", needs[i].Total().value);
    need.Set("capacity_bytes", needs[i].capacity.value);
    need.Set("fits", needs[i].Fits());
    all.Set(scenario.groups[i].name, std::move(need));
  }
  return all;
}

Json BacklogJson(const Backlog& backlog) {
  Json points = Json::MakeArray();
  for (const BacklogPoint& point : backlog.points) {
    points.Append(Json::Array{Json(point.time.value), Json(point.requests)});
  }
  return points;
}

const char* KindName(Shortfall::Kind kind) {
  constexpr const char* kNames[] = {"does_not_fit", "impossible_at_any_count", "too_few_cards"};
  return kNames[static_cast<int>(kind)];
}

Json ShortfallsJson(const Candidate& candidate) {
  Json list = Json::MakeArray();
  for (const Shortfall& shortfall : candidate.shortfalls) {
    Json item = Json::MakeObject();
    item.Set("kind", KindName(shortfall.kind));
    item.Set("reason", shortfall.reason);
    list.Append(std::move(item));
  }
  return list;
}

// Where the numbers come from, by field.
Json EvidenceJson(const Candidate& candidate) {
  const char* rates = EvidenceName(candidate.evidence);
  Json evidence = Json::MakeObject();
  for (const char* field :
       {"prefill_rps", "decode_rps", "throughput_rps", "ttft_s", "ttft_at_arrival_s", "tpot_s",
        "tpot_at_arrival_s", "backlog_cleared_at_s", "cost_per_1000_at_saturation",
        "copies_to_hold", "copies_to_clear", "slo_share"}) {
    evidence.Set(field, candidate.ideal ? "ideal bound" : rates);
  }
  evidence.Set("link_rps", EvidenceName(Evidence::kGiven));
  evidence.Set("cost_per_1000", EvidenceName(Evidence::kGiven));
  evidence.Set("memory", EvidenceName(Evidence::kDerived));
  return evidence;
}

void SetTimes(Json& out, const Candidate& c) {
  out.Set("ttft_s", NumberOrNull(c.ttft.value));
  out.Set("ttft_prefill_s", NumberOrNull(c.ttft_prefill.value));
  out.Set("ttft_transfer_s", NumberOrNull(c.ttft_transfer.value));
  out.Set("ttft_at_arrival_s", NumberOrNull(c.TtftAtArrival().value));
  out.Set("prefill_wait_s", NumberOrNull(c.prefill_wait.value));
  out.Set("link_wait_s", NumberOrNull(c.link_wait.value));
  out.Set("decode_wait_s", NumberOrNull(c.decode_wait.value));
  out.Set("reuse_s", NumberOrNull(c.reuse.value));
  out.Set("tpot_s", ValueOrNull(c.tpot));
  out.Set("tpot_at_arrival_s", ValueOrNull(c.tpot_at_arrival));
  out.Set("slo_share", c.slo_share);
}

Json GridJson(const Scenario& scenario, const Plan& plan) {
  Json grid = Json::MakeArray();
  for (const SplitRates& split : plan.grid) {
    Json cell = Json::MakeObject();
    Json cards = Json::MakeObject();
    for (size_t i = 0; i < scenario.groups.size(); ++i) {
      const CardGroup& group = scenario.groups[i];
      cards.Set(group.name, split.prefill_workers[i] * group.CardsPerWorker());
    }
    cell.Set("prefill_cards", std::move(cards));
    cell.Set("prefill_rps", NumberOrNull(split.prefill.value));
    cell.Set("decode_rps", NumberOrNull(split.decode.value));
    cell.Set("throughput_rps", NumberOrNull(split.throughput.value));
    grid.Append(std::move(cell));
  }
  return grid;
}

Json FlipsJson(const Plan& plan) {
  Json flips = Json::MakeArray();
  for (const Flip& flip : plan.flips) {
    Json item = Json::MakeObject();
    item.Set("what", flip.what);
    item.Set("factor", flip.factor);
    item.Set("to", flip.to);
    item.Set("then", flip.then);
    flips.Append(std::move(item));
  }
  return flips;
}

Json SmallerJson(const Scenario& scenario, const Plan& plan) {
  Json sets = Json::MakeArray();
  for (const SmallerSet& smaller : plan.smaller) {
    Json item = Json::MakeObject();
    Json cards = Json::MakeObject();
    for (size_t i = 0; i < scenario.groups.size(); ++i) {
      cards.Set(scenario.groups[i].name, smaller.cards[i]);
    }
    item.Set("cards", std::move(cards));
    item.Set("price_per_hour", smaller.price_per_hour);
    item.Set("meets_objective", smaller.meets_objective);
    item.Set("reason", smaller.reason);
    sets.Append(std::move(item));
  }
  return sets;
}

}  // namespace

Json CandidateJson(const Scenario& scenario, const Candidate& c) {
  Json out = Json::MakeObject();
  out.Set("scheme", SchemeName(c.scheme));
  out.Set("prefill_cards", PrefillCards(scenario, c));
  out.Set("decode_cards", DecodeCards(scenario, c));
  out.Set("prefill_rps", ValueOrNull(c.prefill_rate));
  out.Set("decode_rps", ValueOrNull(c.decode_rate));
  out.Set("link_rps", ValueOrNull(c.link_rate));
  out.Set("throughput_rps", NumberOrNull(c.throughput.value));
  out.Set("bottleneck", BottleneckName(c.bottleneck));
  SetTimes(out, c);
  out.Set("fits", c.fits);
  out.Set("fit_problem", c.fit_problem);
  out.Set("prefill_memory", MemoryJson(scenario, c.prefill_memory));
  out.Set("decode_memory", MemoryJson(scenario, c.decode_memory));
  out.Set("pool_states", c.pool_states ? Json(*c.pool_states) : Json(nullptr));
  out.Set("transfer_bytes", c.transfer.value);
  out.Set("link_gbytes_per_s", Gigabytes(c.link_at_arrival));
  out.Set("link_gbytes_per_s_at_saturation", Gigabytes(c.link_at_saturation));
  out.Set("backlog_cleared_at_s", ValueOrNull(c.backlog.cleared));
  out.Set("backlog_most_requests", c.backlog.most);
  out.Set("backlog", BacklogJson(c.backlog));
  out.Set("cost_per_1000", NumberOrNull(c.cost_per_1000));
  out.Set("cost_per_1000_at_saturation", NumberOrNull(c.cost_per_1000_at_saturation));
  out.Set("cost_per_1000_within_slo", NumberOrNull(c.cost_per_1000_within_slo));
  out.Set("copies_to_hold", CountOrNull(c.copies_to_hold));
  out.Set("copies_to_clear", CountOrNull(c.copies_to_clear));
  out.Set("meets_objective", c.meets_objective);
  out.Set("shortfalls", ShortfallsJson(c));
  out.Set("ideal", c.ideal);
  out.Set("evidence", EvidenceJson(c));
  return out;
}

Json PlanJson(const Scenario& scenario, const Plan& plan) {
  Json out = Json::MakeObject();
  out.Set("schema", "divisi-plan/1");
  out.Set("scenario", scenario.name);
  out.Set("model", scenario.model_name);
  out.Set("arrival_rps", scenario.workload.arrivals.LongTermRate().value);
  out.Set("price_per_hour", scenario.PricePerHour());
  out.Set("currency", scenario.currency);
  out.Set("chosen", SchemeName(plan.chosen().scheme));
  Json why = Json::MakeArray();
  for (const std::string& sentence : plan.why) why.Append(sentence);
  out.Set("why", std::move(why));
  Json candidates = Json::MakeArray();
  for (const Candidate& candidate : plan.candidates) {
    candidates.Append(CandidateJson(scenario, candidate));
  }
  out.Set("candidates", std::move(candidates));
  out.Set("flips", FlipsJson(plan));
  out.Set("smaller_sets", SmallerJson(scenario, plan));
  out.Set("grid", GridJson(scenario, plan));
  return out;
}

}  // namespace divisi
