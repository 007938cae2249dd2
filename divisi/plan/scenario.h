// What a plan is asked about: a model, cards, links, a stream of requests and what is expected of
// the service. All values are checked before a plan sees them (CheckScenario).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "divisi/catalog/hardware.h"
#include "divisi/catalog/model_spec.h"
#include "divisi/core/result.h"
#include "divisi/plan/backlog.h"
#include "divisi/plan/pass_cost.h"

namespace divisi {

// Where a number comes from, best first. A number made from several is as good as the worst.
enum class Evidence { kGiven, kCalibrated, kDerived, kExtrapolated };
const char* EvidenceName(Evidence evidence);

// Fraction of a peak by batch size: straight lines between points, flat beyond them.
struct EfficiencyCurve {
  struct Point {
    double batch = 1;
    double fraction = 0.5;
  };
  std::vector<Point> points = {{}};  // By batch, rising; at least one.
  double At(double batch) const;
  // Whether `batch` lies beyond the points of a curve that has several.
  bool Extrapolates(double batch) const;
};

// What a card reaches of its peaks at each stage.
struct Efficiency {
  double prefill_compute = 0.5;
  double prefill_memory = 0.5;
  double decode_compute = 0.5;
  EfficiencyCurve decode_memory;
  bool calibrated = false;  // Measured, not assumed.
};

// Like cards of one host. Workers are single cards, or groups of tensor_parallel x expert_parallel
// cards that run one batch together: dense matrices and KV heads are divided among tensor_parallel
// cards and repeated in each of the expert_parallel groups, experts are divided among all.
// Communication inside a worker is not counted.
struct CardGroup {
  std::string name;  // As the scenario calls it; the card's by default.
  CardSpec card;
  int count = 0;
  std::string host;
  int tensor_parallel = 1;
  int expert_parallel = 1;
  Efficiency efficiency;
  double price_per_hour = 0;  // Of one card.

  int CardsPerWorker() const { return tensor_parallel * expert_parallel; }
  int Workers() const { return count / CardsPerWorker(); }
};

// Requests of one kind.
struct RequestClass {
  std::string name = "all";
  double weight = 1;  // Share of the requests: over the sum of all weights.
  Tokens input;
  Tokens output;          // At least 1; of 1 nothing is decoded and nothing moved.
  Tokens cached_prefill;  // Prefix that prefill workers hold already.
  Tokens cached_decode;   // Prefix that decode workers hold, which is not moved.
  std::optional<ArrivalSchedule> arrivals;  // Of its own; absent: its share of the scenario's.

  Tokens NewTokens() const { return input - cached_prefill; }
  // Calls of decode: the last token returned is not fed back. Source: section 9.1.1.
  Tokens DecodeCalls() const { return output - Tokens(1); }
  // Mean context of a decode step. Source: derivations.
  double MeanContext() const {
    return static_cast<double>(input.value) + static_cast<double>(output.value - 1) / 2;
  }
  // State held at the end: all but the last token returned.
  Tokens LastContext() const { return input + DecodeCalls(); }
};

// A state that takes the place of the model's own between and within workers: another model's form
// of the same context (chapter 9 puts DeepSeek-V3's compact MLA into the Qwen3-8B example).
struct StateOverride {
  std::string name;
  Bytes bytes_per_token;
  double query_flops = 0;     // Per token and step; 0: hidden behind memory traffic.
  bool decode_reads = false;  // Whether decode steps read it too; otherwise they read the model's.
};

struct StatePool {
  Bytes capacity;     // 0: not a limit.
  LinkSpec link;      // Both into the pool and out of it.
  double reuses = 0;  // Further reads of each state, by later requests.
};

struct Workload {
  ArrivalSchedule arrivals = ArrivalSchedule::Constant(PerSecond(1));
  double decode_batch = 1;
  std::vector<RequestClass> classes;  // At least one.
};

// What is expected. Absent: not asked for.
struct Objective {
  std::optional<Seconds> clear_by;  // From the start of start-up.
  std::optional<Seconds> ttft;      // At the arrival rate, waiting included.
  std::optional<Seconds> tpot;
};

enum class Scheme { kReplicas, kReplicasChunked, kPdDirect, kPdPool };
const char* SchemeName(Scheme scheme);  // "replicas", "replicas-chunked", "pd-direct", "pd-pool"

struct Scenario {
  std::string name;
  std::string model_name;
  ModelSpec model;
  Storage storage;
  std::optional<StateOverride> state;
  std::vector<CardGroup> groups;
  // What all transfers between prefill and decode workers share.
  LinkSpec link;
  std::optional<StatePool> pool;
  Workload workload;
  // Of the time that prefill could save by riding on decode steps, the fraction that measured mixed
  // steps show. Absent: not known, and replicas-chunked is an ideal bound.
  std::optional<double> chunked_overlap;
  Seconds startup;
  Objective objective;
  std::optional<double> price_per_hour;  // Of everything; absent: the sum of the cards'.
  std::string currency;                  // "yuan"; for printing.
  std::vector<Scheme> schemes;           // To compare; empty: all that apply.

  // How far plans look at the queue.
  Seconds Horizon() const;
  double PricePerHour() const;
  double TotalWeight() const;
};

// Errors: kInvalidArgument or kOutOfRange, with the key as a scenario file has it, what it is and
// what was expected.
Result<void> CheckScenario(const Scenario& scenario);

}  // namespace divisi
