#include "divisi/plan/scenario_file.h"

#include <algorithm>
#include <optional>
#include <set>

#include "divisi/core/format.h"
#include "divisi/core/nearest.h"
#include "divisi/core/yaml_fields.h"
#include "divisi/plan/objective.h"

namespace divisi {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 30;
constexpr int64_t kMostCards = 100000;
constexpr int64_t kMostThreads = 1024;

// Bounds of CheckScenario that a slip of the pen meets, told here with line and key.
constexpr double kLeastFraction = 1e-6;
const YamlWant<BytesPerSecond> kBandwidths{.least = BytesPerSecond(1),
                                           .most = BytesPerSecond(1e18)};
const YamlWant<PerSecond> kRates{.most = PerSecond(1e9)};

struct StoredType {
  const char* name;
  double bytes;
};
constexpr StoredType kStoredTypes[] = {{"bf16", 2}, {"f16", 2},  {"f32", 4},
                                       {"fp8", 1},  {"int8", 1}, {"int4", 0.5}};

std::vector<std::string> StoredTypeNames() {
  std::vector<std::string> names;
  for (const StoredType& type : kStoredTypes) names.emplace_back(type.name);
  return names;
}

double StoredBytes(std::string_view name) {
  for (const StoredType& type : kStoredTypes) {
    if (name == type.name) return type.bytes;
  }
  return 2;  // An error has been kept already.
}

constexpr Scheme kAllSchemes[] = {Scheme::kReplicas, Scheme::kReplicasChunked, Scheme::kPdDirect,
                                  Scheme::kPdPool};

// Takes a catalogue's answer, or fails at the key.
template <typename T>
T Take(YamlFields& fields, std::string_view key, const Result<const T*>& found) {
  if (found) return **found;
  fields.Fail(key, found.error().message);
  return T{};
}

// One reading of one scenario: the parts of the file, in its order.
class Reader {
 public:
  explicit Reader(const ScenarioSources& sources) : sources_(sources) {}

  Scenario Read(YamlFields& top) {
    Scenario& s = scenario_;
    s.name = top.Get<std::string>("name", {.fallback = "scenario"});
    ReadModel(top);
    top.FindMap("storage", [&](YamlFields& storage) { ReadStorage(storage); });
    top.FindMap("state", [&](YamlFields& state) { ReadState(state); });
    efficiency_ = ReadEfficiency(top, Efficiency{});
    top.EachOf("cards", [&](YamlFields& cards) { ReadCards(cards); });
    if (s.groups.empty()) top.Fail("cards", "expected a list of at least one group of cards");
    ReadLinks(top);
    top.FindMap("pool", [&](YamlFields& pool) { ReadPool(pool); });
    top.GetMap("workload", [&](YamlFields& workload) { ReadWorkload(workload); });
    s.chunked_overlap = top.Find<double>("chunked_overlap", {.most = 1});
    s.startup = top.Get<Seconds>("startup", {.fallback = Seconds(0)});
    top.FindMap("objective", [&](YamlFields& objective) { ReadObjective(objective); });
    top.FindMap("price", [&](YamlFields& price) {
      s.price_per_hour = price.Find<double>("per_hour");
      s.currency = price.Get<std::string>("currency", {.fallback = ""});
    });
    ReadSchemes(top);
    return std::move(scenario_);
  }

 private:
  void ReadModel(YamlFields& top) {
    const YamlNode* node = top.Node("model");
    if (node != nullptr && node->is_map()) {
      top.GetMap("model", [&](YamlFields& model) {
        const auto path = model.Get<std::string>("config");
        if (path.empty()) return;
        auto loaded = sources_.load_config(path);
        if (!loaded) return model.Fail("config", loaded.error().message);
        scenario_.model = std::move(*loaded);
        scenario_.model_name = model.Get<std::string>("name", {.fallback = path});
      });
      return;
    }
    scenario_.model_name = top.Get<std::string>("model");
    if (!scenario_.model_name.empty()) {
      scenario_.model = Take(top, "model", sources_.catalog.Model(scenario_.model_name));
    }
  }

  void ReadStorage(YamlFields& storage) {
    const YamlWant<std::string> want{.fallback = "bf16", .one_of = StoredTypeNames()};
    scenario_.storage.weight_bytes = StoredBytes(storage.Get<std::string>("weights", want));
    scenario_.storage.kv_bytes = StoredBytes(storage.Get<std::string>("kv", want));
  }

  void ReadState(YamlFields& fields) {
    StateOverride state;
    const auto like = fields.Find<std::string>("like");
    const auto bytes = fields.Find<Bytes>("bytes_per_token", {.above_zero = true});
    if (like.has_value() == bytes.has_value()) {
      fields.FailHere("expected either 'like' (a model's name) or 'bytes_per_token'");
    }
    double query_flops = fields.Get<double>("query_flops", {.fallback = 0});
    if (bytes) state = {.name = HumanBytes(*bytes) + " a token", .bytes_per_token = *bytes};
    if (like) {
      const ModelSpec other = Take(fields, "like", sources_.catalog.Model(*like));
      if (other.layers > 0) {
        const ModelCost cost(other, scenario_.storage);
        state = {.name = *like, .bytes_per_token = cost.state_per_token};
        query_flops = cost.query_flops;
      }
    }
    const auto work = fields.Get<std::string>(
        "query_work", {.fallback = "hidden", .one_of = {"hidden", "added"}});
    if (work == "added") state.query_flops = query_flops;
    state.decode_reads = fields.Get<bool>("decode_reads", {.fallback = false});
    scenario_.state = state;
  }

  // "efficiency: 0.5", or a map of stages.
  Efficiency ReadEfficiency(YamlFields& fields, Efficiency efficiency) {
    const YamlNode* node = fields.Node("efficiency");
    if (node == nullptr) return efficiency;
    const YamlWant<double> fraction{.least = kLeastFraction, .most = 1};
    if (!node->is_map()) {
      const double all = fields.Get<double>("efficiency", fraction);
      return {all, all, all, {{{1, all}}}, efficiency.calibrated};
    }
    fields.GetMap("efficiency", [&](YamlFields& map) {
      const auto prefill = map.Find<double>("prefill", fraction);
      const auto decode = map.Find<double>("decode", fraction);
      const auto read = [&](std::string_view key, std::optional<double> all, double& value) {
        if (all) value = *all;
        if (const auto own = map.Find<double>(key, fraction)) value = *own;
      };
      read("prefill_compute", prefill, efficiency.prefill_compute);
      read("prefill_memory", prefill, efficiency.prefill_memory);
      read("decode_compute", decode, efficiency.decode_compute);
      if (decode) efficiency.decode_memory.points = {{1, *decode}};
      ReadCurve(map, efficiency.decode_memory);
      efficiency.calibrated = map.Get<bool>("calibrated", {.fallback = efficiency.calibrated});
    });
    return efficiency;
  }

  // "decode_memory: 0.5", or a list of {batch, fraction}.
  void ReadCurve(YamlFields& map, EfficiencyCurve& curve) {
    const YamlWant<double> fraction{.least = kLeastFraction, .most = 1};
    const YamlNode* node = map.Node("decode_memory");
    if (node == nullptr) return;
    if (!node->is_list()) {
      curve.points = {{1, map.Get<double>("decode_memory", fraction)}};
      return;
    }
    curve.points.clear();
    map.EachOf("decode_memory", [&](YamlFields& point) {
      const double batch = point.Get<double>("batch", {.least = 1});
      if (!curve.points.empty() && batch <= curve.points.back().batch) {
        point.Fail("batch", Format("batches must rise from point to point; {} follows {}", batch,
                                   curve.points.back().batch));
      }
      curve.points.push_back({batch, point.Get<double>("fraction", fraction)});
    });
  }

  CardSpec ReadCard(YamlFields& cards) {
    const YamlNode* node = cards.Node("card");
    if (node == nullptr || !node->is_map()) {
      const auto name = cards.Get<std::string>("card");
      return name.empty() ? CardSpec{} : Take(cards, "card", sources_.catalog.Card(name));
    }
    CardSpec card;
    cards.GetMap("card", [&](YamlFields& map) {
      card.name = map.Get<std::string>("name");
      card.bf16_peak = map.Get<FlopsPerSecond>("bf16", {.above_zero = true});
      card.fp8_peak = map.Get<FlopsPerSecond>("fp8", {.fallback = FlopsPerSecond(0)});
      card.memory_bandwidth = map.Get<BytesPerSecond>("memory_bandwidth", {.above_zero = true});
      card.memory = map.Get<Bytes>("memory", {.above_zero = true});
      card.threads =
          static_cast<int>(map.Get<int64_t>("threads", {.fallback = 0, .most = kMostThreads}));
    });
    return card;
  }

  void ReadCards(YamlFields& cards) {
    CardGroup group;
    group.card = ReadCard(cards);
    group.name = cards.Get<std::string>("name", {.fallback = group.card.name});
    for (const CardGroup& other : scenario_.groups) {
      if (other.name == group.name) {
        cards.FailHere(Format("a second group called '{}'; give one of them a 'name'", group.name));
      }
    }
    group.count = static_cast<int>(cards.Get<int64_t>("count", {.least = 0, .most = kMostCards}));
    group.host = cards.Get<std::string>("host", {.fallback = "host"});
    const YamlWant<int64_t> degree{.fallback = 1, .least = 1, .most = 4096};
    group.tensor_parallel = static_cast<int>(cards.Get<int64_t>("tensor_parallel", degree));
    group.expert_parallel = static_cast<int>(cards.Get<int64_t>("expert_parallel", degree));
    group.price_per_hour = cards.Get<double>("price_per_hour", {.fallback = 0});
    group.efficiency = ReadEfficiency(cards, efficiency_);
    CheckWorkers(cards, group);
    scenario_.groups.push_back(std::move(group));
  }

  void CheckWorkers(YamlFields& cards, const CardGroup& group) const {
    const int size = group.CardsPerWorker();
    if (size == 0) return;  // A degree could not be read: an error has been kept already.
    const auto& moe = scenario_.model.moe;
    if (group.count % size != 0) {
      cards.Fail("count", Format("{} cards do not make whole workers of {} (tensor_parallel {} x "
                                 "expert_parallel {})",
                                 group.count, size, group.tensor_parallel, group.expert_parallel));
    } else if (group.expert_parallel > 1 && !moe && scenario_.model.layers > 0) {
      cards.Fail("expert_parallel", Format("{} has no experts", scenario_.model_name));
    } else if (moe && moe->experts % size != 0) {
      cards.FailHere(
          Format("{} experts do not divide among the {} cards of a worker", moe->experts, size));
    }
  }

  // "link: NAME" of the catalogue, "bandwidth" and "launch" of its own, or both to change a part.
  LinkSpec ReadLink(YamlFields& fields) {
    LinkSpec link;
    const auto name = fields.Find<std::string>("link");
    if (name) link = Take(fields, "link", sources_.catalog.Link(*name));
    if (const auto own = fields.Find<BytesPerSecond>("bandwidth", kBandwidths)) {
      link.bandwidth = *own;
    } else if (!name) {
      fields.FailHere("expected 'link' (a catalogue name) or 'bandwidth' (such as 25 GB/s)");
    }
    if (const auto own = fields.Find<Seconds>("launch")) link.launch = *own;
    return link;
  }

  std::string KnownHost(YamlFields& fields, std::string_view key, const std::string& host) {
    std::vector<std::string> hosts;
    for (const CardGroup& group : scenario_.groups) hosts.push_back(group.host);
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) {
      fields.Fail(key, Format("no cards are at host '{}'{}", host, DidYouMean(host, hosts)));
    }
    return host;
  }

  // Transfers share one link: the slowest of those between the hosts, or that inside the only host.
  void ReadLinks(YamlFields& top) {
    std::optional<LinkSpec> slowest;
    std::optional<LinkSpec> outside;  // Slowest of those from the only host to hosts without cards
    std::set<std::pair<std::string, std::string>> joined;
    std::set<std::string> hosts;
    for (const CardGroup& group : scenario_.groups) {
      if (group.count > 0) hosts.insert(group.host);
    }
    top.EachOf("links", [&](YamlFields& fields) {
      const auto between = fields.GetList<std::string>("between");
      const auto inside = fields.Find<std::string>("inside");
      LinkSpec link = ReadLink(fields);
      if (inside) {
        KnownHost(fields, "inside", *inside);
        if (hosts.size() == 1) slowest = link;
        return;
      }
      if (between.size() != 2 || between[0] == between[1]) {
        return fields.FailHere("expected 'between: [HOST, OTHER HOST]' or 'inside: HOST'");
      }
      joined.insert(std::minmax(KnownHost(fields, "between", between[0]),
                                KnownHost(fields, "between", between[1])));
      link.name = Format("{} - {}", between[0], between[1]);
      const bool used = hosts.contains(between[0]) && hosts.contains(between[1]);
      if (used && (!slowest || link.bandwidth < slowest->bandwidth)) slowest = link;
      if (!outside || link.bandwidth < outside->bandwidth) outside = link;
    });
    if (hosts.empty()) return top.Fail("cards", "every count is 0");
    RequireLinks(top, hosts, joined);
    // The last card of a host may be gone: what is left is judged by the link that is known.
    if (!slowest) slowest = outside;
    if (slowest) {
      scenario_.link = *slowest;
    } else {
      top.Fail("links", Format("no link inside host '{}'; add for example {{inside: {}, bandwidth: "
                               "300 GB/s}}",
                               *hosts.begin(), *hosts.begin()));
    }
  }

  void RequireLinks(YamlFields& top, const std::set<std::string>& hosts,
                    const std::set<std::pair<std::string, std::string>>& joined) {
    for (auto a = hosts.begin(); a != hosts.end(); ++a) {
      for (auto b = std::next(a); b != hosts.end(); ++b) {
        if (joined.contains({*a, *b})) continue;
        return top.Fail("links", Format("no link joins hosts '{}' and '{}'; add for example "
                                        "{{between: [{}, {}], bandwidth: 25 GB/s}}",
                                        *a, *b, *a, *b));
      }
    }
  }

  void ReadPool(YamlFields& fields) {
    StatePool pool;
    pool.capacity = fields.Get<Bytes>("capacity", {.above_zero = true});
    pool.reuses = fields.Get<double>("reuses", {.fallback = 0, .most = 1e6});
    pool.link = fields.Has("link") || fields.Has("bandwidth") ? ReadLink(fields) : scenario_.link;
    if (const auto launch = fields.Find<Seconds>("launch")) pool.link.launch = *launch;
    scenario_.pool = pool;
  }

  static ArrivalSchedule ReadSchedule(YamlFields& fields) {
    ArrivalSchedule schedule;
    schedule.period = fields.Get<Seconds>("period", {.fallback = Seconds(0)});
    fields.EachOf("parts", [&](YamlFields& part) {
      const auto from = part.Get<Seconds>("from");
      if (schedule.parts.empty() && from.value != 0) {
        part.Fail("from", "the first part starts at 0 s");
      } else if (!schedule.parts.empty() && from <= schedule.parts.back().from) {
        part.Fail("from", "times must rise from part to part");
      } else if (schedule.period.value > 0 && from >= schedule.period) {
        part.Fail("from",
                  Format("is not before the period of {} ends", HumanSeconds(schedule.period)));
      }
      schedule.parts.push_back({from, part.Get<PerSecond>("rate", kRates)});
    });
    if (schedule.parts.empty()) fields.FailHere("expected 'parts', a list of {from, rate}");
    return schedule;
  }

  // "arrival_rate: 3.5", or "arrivals:" with parts.
  static std::optional<ArrivalSchedule> ReadArrivals(YamlFields& fields) {
    std::optional<ArrivalSchedule> schedule;
    if (const auto rate = fields.Find<PerSecond>("arrival_rate", kRates)) {
      schedule = ArrivalSchedule::Constant(*rate);
    }
    fields.FindMap("arrivals", [&](YamlFields& arrivals) {
      if (schedule) arrivals.FailHere("given beside 'arrival_rate'; keep one of them");
      schedule = ReadSchedule(arrivals);
    });
    return schedule;
  }

  static RequestClass ReadRequest(YamlFields& fields, const RequestClass& base) {
    RequestClass request = base;
    const auto read = [&](const char* key, Tokens least, Tokens& value) {
      YamlWant<Tokens> want{.least = least, .most = Tokens(kMostTokens)};
      if (value.value > 0 || least.value == 0) want.fallback = value;
      value = fields.Get<Tokens>(key, want);
    };
    read("input_tokens", Tokens(1), request.input);
    read("output_tokens", Tokens(1), request.output);
    read("cached_prefill_tokens", Tokens(0), request.cached_prefill);
    read("cached_decode_tokens", Tokens(0), request.cached_decode);
    for (const auto& [key, cached] : {std::pair{"cached_prefill_tokens", request.cached_prefill},
                                      {"cached_decode_tokens", request.cached_decode}}) {
      if (cached.value == 0 || cached < request.input) continue;
      fields.Fail(key, Format("{} of {} input tokens; at most {}, since the last one is always "
                              "computed",
                              cached.value, request.input.value, request.input.value - 1));
    }
    return request;
  }

  void ReadWorkload(YamlFields& fields) {
    Workload& workload = scenario_.workload;
    workload.decode_batch = fields.Get<double>("decode_batch", {.fallback = 1, .least = 1});
    const auto arrivals = ReadArrivals(fields);
    if (!fields.Has("classes")) {
      workload.classes = {ReadRequest(fields, {})};
      if (!arrivals) fields.FailHere("'arrival_rate' is missing; write for example 3.5");
      workload.arrivals = arrivals.value_or(workload.arrivals);
      return;
    }
    RequestClass base;  // What classes may leave out.
    for (const auto& [key, value] : {std::pair{"input_tokens", &base.input},
                                     {"output_tokens", &base.output},
                                     {"cached_prefill_tokens", &base.cached_prefill},
                                     {"cached_decode_tokens", &base.cached_decode}}) {
      *value = fields.Get<Tokens>(key, {.fallback = Tokens(0), .most = Tokens(kMostTokens)});
    }
    fields.EachOf("classes", [&](YamlFields& one) { ReadClass(one, base); });
    MixArrivals(fields, arrivals);
  }

  void ReadClass(YamlFields& fields, const RequestClass& base) {
    RequestClass request = ReadRequest(fields, base);
    const size_t number = scenario_.workload.classes.size();
    request.name = fields.Get<std::string>("name", {.fallback = Format("classes[{}]", number)});
    request.weight = fields.Get<double>("weight", {.fallback = 1, .above_zero = true});
    request.arrivals = ReadArrivals(fields);
    if (request.arrivals) weighed_by_rate_ = true;
    scenario_.workload.classes.push_back(std::move(request));
  }

  // Classes with arrivals of their own make the workload's: their weights are their rates.
  void MixArrivals(YamlFields& fields, const std::optional<ArrivalSchedule>& arrivals) {
    Workload& workload = scenario_.workload;
    if (!weighed_by_rate_) {
      if (!arrivals) fields.FailHere("'arrival_rate' is missing; write for example 3.5");
      workload.arrivals = arrivals.value_or(workload.arrivals);
      return;
    }
    if (arrivals) return fields.FailHere("arrivals are given for the whole and for a class");
    for (RequestClass& request : workload.classes) {
      if (!request.arrivals || request.arrivals->parts.empty()) {
        return fields.FailHere(Format(
            "class '{}' has no arrivals; either every class has its own or none", request.name));
      }
      request.weight = request.arrivals->LongTermRate().value;
    }
    workload.arrivals = ArrivalsAt(scenario_, std::vector<double>(workload.classes.size(), 1.0));
  }

  void ReadObjective(YamlFields& fields) {
    Objective& objective = scenario_.objective;
    objective.clear_by = fields.Find<Seconds>("clear_by", {.above_zero = true});
    objective.ttft = fields.Find<Seconds>("ttft", {.above_zero = true});
    objective.tpot = fields.Find<Seconds>("tpot", {.above_zero = true});
  }

  void ReadSchemes(YamlFields& top) {
    YamlWant<std::string> want;
    for (const Scheme scheme : kAllSchemes) want.one_of.emplace_back(SchemeName(scheme));
    for (const std::string& name : top.GetList<std::string>("schemes", want)) {
      for (const Scheme scheme : kAllSchemes) {
        if (name == SchemeName(scheme)) scenario_.schemes.push_back(scheme);
      }
    }
  }

  const ScenarioSources& sources_;
  Scenario scenario_;
  Efficiency efficiency_;  // Of cards that do not say their own.
  bool weighed_by_rate_ = false;
};

}  // namespace

Result<Scenario> ReadScenario(const YamlNode& tree, std::string_view file,
                              const ScenarioSources& sources) {
  YamlErrors errors{std::string(file)};
  std::optional<Scenario> scenario;
  YamlFields::Read(tree, "", errors,
                   [&](YamlFields& top) { scenario = Reader(sources).Read(top); });
  if (errors.first()) return *errors.first();
  if (const auto checked = CheckScenario(*scenario); !checked) {
    return WithContext(checked.error(), file);
  }
  return std::move(*scenario);
}

}  // namespace divisi
