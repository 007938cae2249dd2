#include "divisi/control/report_wire.h"

namespace divisi {
namespace {

// Of all transfers of a process together, in seconds.
constexpr double kLongestTime = 1e15;

// Numbers of a report, in order.
constexpr int64_t ReportMessage::*kReportFields[] = {
    &ReportMessage::running,      &ReportMessage::waiting,        &ReportMessage::held,
    &ReportMessage::reserved,     &ReportMessage::prompt_backlog, &ReportMessage::stopping,
    &ReportMessage::computing,    &ReportMessage::writing,        &ReportMessage::handed_over,
    &ReportMessage::ending,       &ReportMessage::pages_reserved, &ReportMessage::pages_pinned,
    &ReportMessage::blocks_total, &ReportMessage::blocks_used,    &ReportMessage::pool_nodes,
    &ReportMessage::pool_ready};
void Put(WireWriter& out, const TimeCounts& times) {
  for (const int64_t count : times.counts) out.Put(count);
  out.Put(times.seconds);
}
void Get(WireReader& in, TimeCounts& times) {
  for (int64_t& count : times.counts) count = in.GetCount();
  times.seconds = in.GetDouble();
  in.Require(times.seconds >= 0 && times.seconds <= kLongestTime);
}
void Put(WireWriter& out, const WorkerRates& rates) {
  for (const Seconds time : {rates.step, rates.per_token, rates.per_pair, rates.per_sequence}) {
    out.Put(time.value);
  }
  out.Put(rates.write.value);
  out.Put(rates.steps);
  out.Put(rates.prompt_steps);
  out.Put(rates.writes);
  for (size_t t = 1; t < rates.read.size(); ++t) {
    out.Put(rates.read[t].value);
    out.Put(static_cast<uint8_t>(rates.read_measured[t]));
  }
  out.Put(rates.lookup.value);
  out.Put(static_cast<uint8_t>(rates.lookup_measured));
}
void Get(WireReader& in, WorkerRates& rates) {
  for (Seconds* time : {&rates.step, &rates.per_token, &rates.per_pair, &rates.per_sequence}) {
    time->value = in.GetDouble();
  }
  rates.write.value = in.GetDouble();
  rates.steps = in.GetCount();
  rates.prompt_steps = in.GetCount();
  rates.writes = in.GetCount();
  for (size_t t = 1; t < rates.read.size(); ++t) {
    rates.read[t].value = in.GetDouble();
    rates.read_measured[t] = in.GetBool();
  }
  rates.lookup.value = in.GetDouble();
  rates.lookup_measured = in.GetBool();
}

}  // namespace

void Put(WireWriter& out, const ReportMessage& m) {
  for (const auto field : kReportFields) out.Put(m.*field);
  for (const auto count : WorkerCounters::kCounts) out.Put(m.counters.*count);
  for (const auto times : WorkerCounters::kTimes) Put(out, m.counters.*times);
  Put(out, m.rates);
}
void Get(WireReader& in, ReportMessage& m) {
  for (const auto field : kReportFields) m.*field = in.GetCount();
  for (const auto count : WorkerCounters::kCounts) m.counters.*count = in.GetCount();
  for (const auto times : WorkerCounters::kTimes) Get(in, m.counters.*times);
  Get(in, m.rates);
}

}  // namespace divisi
