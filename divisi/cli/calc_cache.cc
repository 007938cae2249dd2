#include "divisi/cli/calc_cache.h"

#include "divisi/cli/calc_inputs.h"
#include "divisi/core/format.h"
#include "divisi/plan/flow.h"
#include "divisi/plan/kv_restart.h"
#include "divisi/plan/kv_reuse.h"

namespace divisi {
namespace {

constexpr const char* kReuseFormula =
    "storing pays: T_write + k T_read < k T_recompute        s; k: --uses\n"
    "T_write = V / B_write, T_read = V / B_read; V: state of --tokens, bytes; B: bytes/s\n"
    "break-even B = V (1 + k) / (k T_recompute)     both directions alike; a fetch alone: "
    "V / T_recompute\n"
    "uses to pay = floor(T_write / (T_recompute - T_read)) + 1\n"
    "read at every step: V n / B_read s on the link; V n / --within bytes/s to be in time\n"
    "held = V --hold                                byte-seconds\n"
    "through a pool: (2 + k) moves of V for each request that is used k times more\n"
    "Source: sections 9.5.2, 9.7.1, 9.7.3.";

CalcTable WaysToUse(const ReuseTimes& times, const RepeatedReads& reads, BytesPerSecond link) {
  const Bytes state = reads.state;
  const auto row = [](Seconds time, Bytes moved) -> std::vector<double> {
    return {time.value, static_cast<double>(moved.value)};
  };
  return {"ways",
          Format("{} uses of the same state", reads.count),
          {"recompute once, keep", "fetch once, keep", "read at every use", "recompute every time"},
          {{"time", 0, CalcUnit::kSeconds, "time"}, {"moved", 0, CalcUnit::kBytes, "moved"}},
          {row(times.recompute, Bytes(0)), row(times.read, state),
           row(reads.LinkTime(link), reads.Total()), row(times.Recomputed(reads.count), Bytes(0))}};
}

std::string ReuseNote(const ReuseTimes& times, double uses) {
  const auto pay = times.UsesToPay();
  if (!pay) return "A fetch is no faster than recomputing: storing never pays on the way to use.";
  return Format("Storing pays from {} use{} on; {} {} given.", *pay, *pay == 1 ? "" : "s", uses,
                uses == 1 ? "is" : "are");
}

Result<CalcResult> RunReuse(const CalcValues& in) {
  ASSIGN_OR_RETURN(const ModelCost model, ModelOf(in));
  ASSIGN_OR_RETURN(const CalcDevice device, DeviceOf(in));
  ASSIGN_OR_RETURN(const Bytes per_token, StatePerToken(in));
  const Tokens tokens = TokensOf(in, "tokens");
  const Bytes state = Times(per_token, in.Count("tokens"));
  const BytesPerSecond link = in.GetBytesPerSecond("read-bandwidth");
  const double uses = in.Count("uses");
  const ReuseTimes times{
      .write = TimeToMove(state, in.GetBytesPerSecond("write-bandwidth")),
      .read = TimeToMove(state, link),
      .recompute = TimeOf(model.Prefill(tokens, Tokens(0)), device.rates).Total()};
  const RepeatedReads reads{state, in.Count("step-reads")};
  const PoolTraffic pool{state, 2 + uses};
  const PerSecond arrivals = in.GetPerSecond("arrival-rate");
  CalcResult result;
  result.figures = {
      FigureOf("state", state, "KV of the prefix"),
      FigureOf("write", times.write, "one write"),
      FigureOf("read", times.read, "one fetch"),
      FigureOf("recompute", times.recompute, "one recomputation"),
      FigureOf("stored", times.Stored(uses), "one write and the uses' fetches"),
      FigureOf("recomputed", times.Recomputed(uses), "recomputing at each use"),
      FigureOf("saved", times.Saved(uses), "saved by storing"),
      FigureOf("uses_to_pay", times.UsesToPay().value_or(kNever.value), "uses from which it pays"),
      FigureOf("break_even", BreakEvenBandwidth(state, uses, times.recompute),
               "bandwidth at which these uses just pay"),
      FigureOf("fetch_break_even", RateToMove(state, times.recompute),
               "bandwidth at which a fetch alone just pays"),
      FigureOf("every_step", reads.LinkTime(link), "the link's time of reading at every step"),
      FigureOf("every_step_bandwidth", reads.NeededBandwidth(in.GetSeconds("within")),
               "bandwidth to read at every step in time"),
      FigureOf("held_byte_seconds", HeldByteSeconds(state, in.GetSeconds("hold")),
               "byte-seconds of holding it"),
      FigureOf("pool_moved", pool.PerRequest(), "moved through a pool by a request and its uses"),
      FigureOf("pool_traffic", pool.At(arrivals), "traffic of a pool at the arrival rate"),
      FigureOf("pool_requests", pool.MostRequests(link), "requests that the link carries")};
  result.tables.push_back(WaysToUse(times, reads, link));
  result.notes.push_back(ReuseNote(times, uses));
  return result;
}

CalcTopic KvReuseTopic() {
  return {"kv-reuse",
          "Store KV and fetch it, or recompute; fetch once, or read at every step",
          kReuseFormula,
          {ModelInput(),
           StateModelInput(),
           CardInput("A100 80GB SXM"),
           EfficiencyInput(),
           TokensInput("tokens", "8192", "Tokens of the prefix"),
           {"uses", CalcUnit::kCount, "1", "Later uses, k", CalcLimit::kWhole},
           RateInput("write-bandwidth", "25GB/s", "Link of the write"),
           RateInput("read-bandwidth", "25GB/s", "Link of the fetches"),
           {"step-reads", CalcUnit::kCount, "100", "Steps that would read it", CalcLimit::kWhole},
           {"within", CalcUnit::kSeconds, "1s", "Time for these reads", CalcLimit::kPositive},
           {"hold", CalcUnit::kSeconds, "10s", "Time for which it is kept"},
           {"arrival-rate", CalcUnit::kPerSecond, "3.5", "Requests per second through a pool"}},
          RunReuse};
}

constexpr const char* kRestartFormula =
    "page = --page-tokens * state per token             bytes\n"
    "segments = layers * (K and V: 2; a latent: 1)      contiguous pieces of a page kept by "
    "layers\n"
    "pages read = ceil(--read-tokens / page), pages used = floor(--matched-tokens / page)\n"
    "waiting for a missing object pays no longer than recomputing --prefix-tokens takes, s\n"
    "Source: section 9.5.3.";

Result<CalcResult> RunRestart(const CalcValues& in) {
  ASSIGN_OR_RETURN(const ModelCost model, ModelOf(in));
  ASSIGN_OR_RETURN(const CalcDevice device, DeviceOf(in));
  ASSIGN_OR_RETURN(const ModelSpec* spec, in.catalog().Model(in.Text("model")));
  const PageLayout page =
      LayoutOf(TokensOf(in, "page-tokens"), model.state_per_token, model.layers, spec->mla ? 1 : 2);
  const RestartRead read =
      ReadAfterRestart(page, TokensOf(in, "read-tokens"), TokensOf(in, "matched-tokens"));
  const Tokens prefix = TokensOf(in, "prefix-tokens");
  const auto pages = static_cast<double>(read.pages_read);
  CalcResult result;
  result.figures = {
      FigureOf("page", page.bytes, "a page, all layers"),
      FigureOf("segments", double(page.segments), "pieces of a page kept by layers"),
      FigureOf("segment", page.Segment(), "one piece"),
      FigureOf("pages_read", pages, "pages read"),
      FigureOf("pages_used", double(read.pages_used), "pages that replace computing"),
      FigureOf("read", read.read, "bytes read"),
      FigureOf("used", read.used, "bytes that replace computing"),
      FigureOf("segment_reads", pages * double(page.segments), "reads by pieces"),
      FigureOf("object_reads", pages, "reads by pages"),
      FigureOf("longest_wait", TimeOf(model.Prefill(prefix, Tokens(0)), device.rates).Total(),
               "recomputing the prefix: the longest wait that can pay")};
  result.notes.push_back(Format(
      "{} pages read, {} used. A faster disk shortens reading, not the computing of the rest.",
      read.pages_read, read.pages_used));
  return result;
}

CalcTopic KvRestartTopic() {
  return {
      "kv-restart",
      "Pages read after a restart against pages used",
      kRestartFormula,
      {ModelInput(),
       CardInput("A100 80GB SXM"),
       EfficiencyInput(),
       TokensInput("page-tokens", "16", "Tokens of a page"),
       {"read-tokens", CalcUnit::kCount, "1024", "Tokens whose pages were read", CalcLimit::kWhole},
       {"matched-tokens", CalcUnit::kCount, "1008", "Contiguous prefix that can be used",
        CalcLimit::kWhole},
       TokensInput("prefix-tokens", "8192", "Prefix that waits for a missing page")},
      RunRestart};
}

}  // namespace

std::vector<CalcTopic> CacheTopics() {
  return {KvTiersTopic(), KvReuseTopic(), KvRestartTopic(), KvTraceTopic(), RouteTopic()};
}

}  // namespace divisi
