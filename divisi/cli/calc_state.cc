// The calculators of section 9.2.2: how large a request's state is, and its way between pools.
#include <cmath>

#include "divisi/cli/calc_inputs.h"
#include "divisi/core/format.h"
#include "divisi/plan/checks.h"
#include "divisi/plan/flow.h"
#include "divisi/plan/state_transfer.h"

namespace divisi {
namespace {

// kv-size

constexpr const char* kSizeFormula =
    "GQA: v = 2 n h_kv d_h b           bytes of a token: K and V of every KV head, all layers\n"
    "compact MLA: v = n (d_c + d_r) b  one latent and one rotary part a layer\n"
    "expanded MLA: v = n h (d_k + d_v) b   K and V of every head written out\n"
    "V = v --tokens --copies; n: layers, b: --kv-bytes; in --memory: floor(memory / V) prompts\n"
    "--copies: groups of a worker that each keep the whole state, as the expert-parallel ones of\n"
    "section 9.1.1: --model qwen3-235b-a22b --copies 4.\n"
    "Source: sections 9.2.2, 9.1.1, 9.7.2.";

std::string FormNote(const std::string& name, const ModelSpec& spec) {
  if (spec.mla) {
    return Format(
        "{} keeps compact MLA: a latent of {} and a rotary part of {} in each of {} layers.", name,
        spec.mla->latent_dim, spec.mla->rope_dim, spec.layers);
  }
  return Format("{} keeps GQA: K and V of {} heads of {} in each of {} layers.", name,
                spec.kv_heads, spec.head_dim, spec.layers);
}

void AddExpanded(const ModelSpec& spec, const CalcValues& in, CalcResult& result) {
  if (!spec.mla) return;
  const Storage storage{.kv_bytes = in.Count("kv-bytes")};
  const Bytes own = ModelCost(spec, storage).state_per_token;
  const Bytes expanded = ModelCost(spec, storage, StateForm::kExpanded).state_per_token;
  result.figures.push_back(FigureOf("expanded_token", expanded, "a token, written out by heads"));
  result.figures.push_back(FigureOf("expanded_prompt", Times(expanded, in.Count("tokens")),
                                    "the prompt, written out by heads"));
  result.figures.push_back(
      FigureOf("expanded_ratio", expanded / own, "written out to compact, times"));
}

Result<CalcResult> RunSize(const CalcValues& in) {
  const double kv_bytes = in.Count("kv-bytes");
  // A bit to two doubles: beyond, products leave the range.
  RETURN_IF_ERROR(RequireBetween({"--kv-bytes", kv_bytes}, 0.125, 16));
  const bool other = !in.Text("state-model").empty();
  const std::string input = other ? "state-model" : "model";
  const auto found = in.catalog().Model(in.Text(input));
  if (!found) return WithContext(found.error(), "--" + input);
  const ModelSpec& spec = **found;
  ASSIGN_OR_RETURN(const ModelCost replaced, ModelOf(in));
  const Bytes token = ModelCost(spec, {.kv_bytes = kv_bytes}).state_per_token;
  const Bytes prompt = Times(token, in.Count("tokens"));
  const Bytes copies = Times(prompt, in.Count("copies"));
  CalcResult result;
  result.figures = {FigureOf("token", token, "state of a token, all layers"),
                    FigureOf("prompt", prompt, "of the prompt"),
                    FigureOf("all_copies", copies, "of the prompt, all copies"),
                    FigureOf("prompts_in_memory", std::floor(in.GetBytes("memory") / copies),
                             "prompts that the memory holds")};
  AddExpanded(spec, in, result);
  if (other) {
    result.figures.push_back(
        FigureOf("to_model", token / replaced.state_per_token, "to the state of --model, times"));
  }
  result.notes.push_back(FormNote(in.Text(input), spec));
  return result;
}

CalcTopic KvSize() {
  return {"kv-size",
          "The state of a token and of a prompt: GQA, MLA compact and written out",
          kSizeFormula,
          {ModelInput(),
           StateModelInput(),
           TokensInput("tokens", "8192", "Tokens of the prompt"),
           {"kv-bytes", CalcUnit::kCount, "2", "Bytes of an element: bf16 2, fp8 1",
            CalcLimit::kPositive},
           {"copies", CalcUnit::kCount, "1", "How often the state is kept", CalcLimit::kOneOrMore},
           {"memory", CalcUnit::kBytes, "64GiB", "Memory for states"}},
          RunSize};
}

// kv-transfer

constexpr const char* kTransferFormula =
    "payload = V / B                       s; V: state of --tokens, bytes; B: bytes/s\n"
    "T(n) = V / B + n alpha                s; n: --launches of the same total, one after another\n"
    "held twice = V T (n + 1) / 2n         byte-seconds: each part is released as it arrives\n"
    "a stream of lambda states a second (--rates):\n"
    "  needed = lambda V, utilisation = lambda V / B, queue grows by max(0, lambda V - B) bytes/s\n"
    "  wait = rho / (2 mu (1 - rho))       s, mean, M/D/1; mu = B / V, rho = lambda / mu\n"
    "  --burst more at once are gone after burst / (mu - lambda) s; never where mu <= lambda\n"
    "Launches of a stream hide behind the bytes of the transfer before.\n"
    "Source: section 9.2.2, example 9.1; M/D/1: Pollaczek and Khinchine.";

CalcFigure Column(const char* key, CalcUnit unit, const char* label) {
  return {key, 0, unit, label};
}

CalcTable LaunchTable(Bytes state, const TransferLink& link, const CalcValues& in) {
  CalcTable table{
      "launches",
      "The same bytes in n launches",
      {},
      {Column("part", CalcUnit::kBytes, "each"), Column("total", CalcUnit::kSeconds, "time"),
       Column("launch_share", CalcUnit::kCount, "of it launches, share"),
       Column("held_twice_byte_seconds", CalcUnit::kCount, "held twice, byte-seconds")},
      {}};
  for (const double launches : in.Counts("launches")) {
    const SerialTransfers parts{.payload = state, .launches = launches};
    const Seconds total = parts.Total(link);
    table.row_names.push_back(Format("{}", launches));
    table.rows.push_back({static_cast<double>(state.value) / launches, total.value,
                          1 - parts.Payload(link) / total, HeldTwiceByteSeconds(parts, link)});
  }
  return table;
}

CalcTable MemoryTable(Bytes state, const TransferLink& link) {
  CalcTable table{"memory",
                  "Memory at both ends, one whole transfer",
                  {},
                  {Column("time", CalcUnit::kSeconds, "from"),
                   Column("source", CalcUnit::kBytes, "prefill holds"),
                   Column("target", CalcUnit::kBytes, "decode holds"),
                   Column("both", CalcUnit::kBytes, "both")},
                  {}};
  for (const TransferMoment& moment : MomentsOf({.payload = state, .launches = 1}, link)) {
    const auto source = static_cast<double>(moment.source.value);
    const auto target = static_cast<double>(moment.target.value);
    table.row_names.push_back(moment.name);
    table.rows.push_back({moment.time.value, source, target, source + target});
  }
  return table;
}

CalcTable StreamTable(Bytes state, BytesPerSecond link, const CalcValues& in) {
  CalcTable table{"stream",
                  "States that follow each other, by states per second",
                  {},
                  {Column("needed", CalcUnit::kBytesPerSecond, "needs"),
                   Column("utilisation", CalcUnit::kCount, "of the link"),
                   Column("growth", CalcUnit::kBytesPerSecond, "queue grows by"),
                   Column("wait", CalcUnit::kSeconds, "mean wait"),
                   Column("burst_drain", CalcUnit::kSeconds, "burst gone after")},
                  {}};
  for (const double rate : in.Counts("rates")) {
    const TransferStream stream{state, PerSecond(rate), link};
    table.row_names.push_back(Format("{}", rate));
    table.rows.push_back({stream.Needed().value, stream.Utilisation(), stream.Growth().value,
                          stream.MeanWait().value, stream.Drain(in.Count("burst")).value});
  }
  return table;
}

Result<CalcResult> RunTransfer(const CalcValues& in) {
  ASSIGN_OR_RETURN(const Bytes per_token, StatePerToken(in));
  const Bytes state = Times(per_token, in.Count("tokens"));
  const TransferLink link{in.GetBytesPerSecond("bandwidth"), in.GetSeconds("launch")};
  const SerialTransfers once{.payload = state, .launches = 1};
  const TransferStream stream{.state = state, .link = link.bandwidth};
  CalcResult result;
  result.figures = {FigureOf("state", state, "state of the prompt"),
                    FigureOf("payload", once.Payload(link), "its bytes on the link"),
                    FigureOf("transfer", once.Total(link), "one transfer, its launch included"),
                    FigureOf("most", stream.Most(), "states that the link carries"),
                    FigureOf("peak", Times(state, 2), "held at both ends at once, at most")};
  result.tables = {LaunchTable(state, link, in), MemoryTable(state, link),
                   StreamTable(state, link.bandwidth, in)};
  for (const double rate : in.Counts("rates")) {
    if (rate < stream.Most().value) continue;
    result.notes.push_back(
        Format("{} states/s take all of the link, which carries {:.4g}: a queue never shrinks.",
               rate, stream.Most().value));
  }
  return result;
}

CalcTopic KvTransfer() {
  return {
      "kv-transfer",
      "A state's way from prefill to decode: time, memory at both ends, a stream of them",
      kTransferFormula,
      {ModelInput(),
       StateModelInput(),
       TokensInput("tokens", "8192", "Tokens of the prompt"),
       RateInput("bandwidth", "25GB/s", "Payload of the link, one direction"),
       {"launch", CalcUnit::kSeconds, "5us", "Fixed cost of each launch"},
       {"launches", CalcUnit::kCounts, "1,72", "Launches that carry it; a list",
        CalcLimit::kOneOrMore},
       {"rates", CalcUnit::kCounts, "8,16", "States per second; a list", CalcLimit::kPositive},
       {"burst", CalcUnit::kCount, "10", "States that come at once besides", CalcLimit::kWhole}},
      RunTransfer};
}

}  // namespace

std::vector<CalcTopic> StateTopics() { return {KvSize(), KvTransfer()}; }

}  // namespace divisi
