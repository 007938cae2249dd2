#include <algorithm>
#include <optional>

#include "divisi/cli/calc_lifecycle.h"
#include "divisi/cli/calc_service_rates.h"
#include "divisi/plan/backlog.h"
#include "divisi/plan/flow.h"
#include "divisi/plan/money.h"
#include "divisi/plan/startup.h"

namespace divisi {
namespace {

CalcFigure Column(const char* key, CalcUnit unit, const char* label) {
  return {key, 0, unit, label};
}

std::vector<CalcInput> WithServices(std::vector<CalcInput> inputs) {
  for (CalcInput& input : ServiceInputs()) inputs.push_back(std::move(input));
  return inputs;
}

std::string StartupFormula() {
  return std::string(
             "backlog = lambda T_s                              requests at the end of the start\n"
             "drain = lambda T_s / (mu - lambda)                s; never where mu <= lambda\n"
             "required mu = lambda + lambda T_s / (deadline - T_s)         1/s\n"
             "steps to pay = --longer-start / --saved-per-step  the next one gains\n") +
         kServiceFormula +
         "Times count from the beginning of the start. Sources: sections 9.6.1, "
         "9.7.2; rates 9.2.3.";
}

// One row for each service: its queue as a fluid.
CalcTable ServiceBacklogs(const std::vector<ServiceRate>& services, const CalcValues& in) {
  const Seconds start = in.GetSeconds("start");
  const Seconds at = in.GetSeconds("at");
  CalcTable table{"services",
                  "Services",
                  {},
                  {Column("rate", CalcUnit::kPerSecond, "serves"),
                   Column("drain", CalcUnit::kSeconds, "drains in"),
                   Column("cleared_at", CalcUnit::kSeconds, "queue gone at"),
                   Column("backlog_at", CalcUnit::kCount, "queue at --at"),
                   Column("in_time", CalcUnit::kCount, "in time (1: yes)")},
                  {}};
  for (const ServiceRate& service : services) {
    const Backlog backlog =
        BacklogOver({.arrivals = ArrivalSchedule::Constant(in.GetPerSecond("arrival-rate")),
                     .ready = start,
                     .rate = service.rate,
                     .horizon = std::max(at, start)});
    const Seconds cleared = backlog.cleared.value_or(kNever);
    table.row_names.push_back(service.name);
    table.rows.push_back({service.rate.value, (cleared - start).value, cleared.value,
                          backlog.At(at), cleared <= in.GetSeconds("deadline") ? 1.0 : 0.0});
  }
  return table;
}

Result<CalcResult> RunStartup(const CalcValues& in) {
  ASSIGN_OR_RETURN(const std::vector<ServiceRate> services, ServiceRatesOf(in));
  const PerSecond arrivals = in.GetPerSecond("arrival-rate");
  const Seconds start = in.GetSeconds("start");
  const Seconds longer = in.GetSeconds("longer-start");
  const Seconds saved = in.GetSeconds("saved-per-step");
  const double steps = StepsToPay(longer, saved);
  const auto required =
      RateToClear(ArrivalSchedule::Constant(arrivals), start, in.GetSeconds("deadline"));
  CalcResult result;
  result.figures = {
      FigureOf("backlog", arrivals * start, "requests that wait when the service is ready"),
      FigureOf("required_rate", required.value_or(PerSecond(kNever.value)),
               "rate that clears them by the deadline"),
      FigureOf("steps_to_pay", steps, "steps that pay for the longer start"),
      FigureOf("first_gaining_step", FirstStepThatGains(longer, saved), "first step that gains"),
      FigureOf("tokens_to_pay", steps * in.Count("batch"), "output tokens of these steps")};
  result.tables.push_back(ServiceBacklogs(services, in));
  if (!required) result.notes.push_back("The deadline is not after the start: no rate meets it.");
  return result;
}

std::string CostFormula() {
  return std::string(
             "cost of 1000 = 1000 price / (3600 s * completed per second)      price: of all "
             "cards, per hour\n"
             "at the arrival rate: completed = min(lambda, mu); saturated: mu; good: share * "
             "mu\n") +
         kServiceFormula + "Source: section 9.7.2, C_effective; rates 9.2.3.";
}

Result<CalcResult> RunCost(const CalcValues& in) {
  ASSIGN_OR_RETURN(const std::vector<ServiceRate> services, ServiceRatesOf(in));
  const MoneyPerHour price(in.Count("price-per-hour"));
  const PerSecond arrivals = in.GetPerSecond("arrival-rate");
  const double share = in.Count("good-share");
  CalcTable table{"services",
                  "Cost of a thousand requests",
                  {},
                  {Column("rate", CalcUnit::kPerSecond, "serves"),
                   Column("completed", CalcUnit::kPerSecond, "completes"),
                   Column("at_arrival", CalcUnit::kCount, "at the arrival rate"),
                   Column("saturated", CalcUnit::kCount, "saturated"),
                   Column("good", CalcUnit::kCount, "saturated, per good one")},
                  {}};
  for (const ServiceRate& service : services) {
    const PerSecond completed = Completed(arrivals, service.rate);
    table.row_names.push_back(service.name);
    table.rows.push_back({service.rate.value, completed.value,
                          CostPerThousand(price, completed).value,
                          CostPerThousand(price, service.rate).value,
                          CostPerThousand(price, service.rate * share).value});
  }
  CalcResult result;
  result.tables.push_back(std::move(table));
  result.notes.push_back(
      "Costs are in the currency of --price-per-hour. A rate above the arrivals "
      "makes no more requests.");
  return result;
}

}  // namespace

CalcTopic StartupTopic() {
  return {"startup", "Pay-back of a longer start, the backlog it gathers, and when that is gone",
          StartupFormula(),
          WithServices({{"arrival-rate", CalcUnit::kPerSecond, "3.5", "Requests per second"},
                        {"start", CalcUnit::kSeconds, "10s", "Time until the service is ready"},
                        {"deadline", CalcUnit::kSeconds, "60s", "When the queue should be gone"},
                        {"at", CalcUnit::kSeconds, "60s", "When to look at the queue"},
                        {"longer-start", CalcUnit::kSeconds, "10s", "What graphs add to the start"},
                        {"saved-per-step", CalcUnit::kSeconds, "0.2ms", "What they save a step"}}),
          RunStartup};
}

CalcTopic CostTopic() {
  return {
      "cost", "Cost of a thousand requests: at the arrival rate, saturated, of those in time",
      CostFormula(),
      WithServices({{"price-per-hour", CalcUnit::kCount, "8", "Price of all cards"},
                    {"arrival-rate", CalcUnit::kPerSecond, "3.5", "Requests per second"},
                    {"good-share", CalcUnit::kCount, "0.25",
                     "Share of completed requests that meet the objective", CalcLimit::kShare}}),
      RunCost};
}

}  // namespace divisi
