#include "divisi/cli/cluster_view.h"

#include <optional>
#include <utility>
#include <vector>

#include "divisi/core/format.h"

namespace divisi {
namespace {

// The members of one object, by type. The first fault is kept, and reading goes on with zeros.
class Members {
 public:
  Members(const Json& object, std::string path, std::optional<Error>& fault)
      : object_(object), path_(std::move(path)), fault_(fault) {}

  std::string Text(const char* key) const {
    const Json* value = Of(key, "a string", &Json::is_string);
    return value != nullptr ? value->as_string() : std::string();
  }
  bool Flag(const char* key) const {
    const Json* value = Of(key, "a boolean", &Json::is_bool);
    return value != nullptr && value->as_bool();
  }
  int64_t Whole(const char* key) const {
    const Json* value = Of(key, "an integer", &Json::is_int);
    return value != nullptr ? value->as_int() : 0;
  }
  double Number(const char* key) const {
    const Json* value = Of(key, "a number", &Json::is_number);
    return value != nullptr ? value->as_double() : 0;
  }
  // What the gateway has not heard is null: `absent`.
  std::string WholeOr(const char* key, const char* absent) const {
    const Json* value = object_.Find(key);
    if (value != nullptr && value->is_null()) return absent;
    return Format("{}", Whole(key));
  }
  // Of the list's objects; none where it is no list.
  std::vector<Members> Each(const char* key) const {
    std::vector<Members> all;
    const Json* list = Of(key, "an array", &Json::is_array);
    if (list == nullptr) return all;
    for (const Json& each : list->as_array()) {
      all.emplace_back(each, Format("{}{}[{}].", path_, key, all.size()), fault_);
    }
    return all;
  }
  std::optional<Members> Find(const char* key) const {
    const Json* object = object_.Find(key);
    if (object == nullptr) return std::nullopt;
    return Members(*object, Format("{}{}.", path_, key), fault_);
  }

 private:
  const Json* Of(const char* key, const char* wanted, bool (Json::*is)() const) const {
    const Json* value = object_.Find(key);
    if (value != nullptr && (value->*is)()) return value;
    if (!fault_) {
      const std::string what = value == nullptr
                                   ? std::string("is missing")
                                   : Format("is {} instead of {}", value->TypeName(), wanted);
      fault_ = Error{Code::kUnimplemented, Format("{}{} {}", path_, key, what)};
    }
    return nullptr;
  }

  const Json& object_;
  std::string path_;
  std::optional<Error>& fault_;
};

// The threshold and its terms, in the order of HandoverThreshold's formula.
std::string ThresholdText(const Members& threshold) {
  const auto ms = [&](const char* key) { return threshold.Number(key) * 1e3; };
  const std::string from = threshold.WholeOr("from_tokens", "");
  const std::string tokens =
      from.empty() ? std::string("at no length") : Format("from {} tokens", from);
  if (threshold.Flag("given")) return Format("prompts are handed over {}\n", tokens);
  return Format(
      "prompts are handed over {}: {:.4g} ms a token for each of {} streams against {:.3g} ms to "
      "reserve, {:.4g} ms a token of the last chunk to send and a step of {:.3g} ms\n",
      tokens, ms("work_seconds_per_token"), threshold.Whole("streams"), ms("reserve_seconds"),
      ms("transfer_seconds_per_token"), ms("step_seconds"));
}

constexpr const char* kRow = "{:<20}{:<9}{:>9}{:>9}{:>9}{:>9}{:>14}{:>13}{:>13}{:>11}  {}\n";

std::string WorkerRow(const Members& worker) {
  const auto number = [&](const char* key) { return worker.WholeOr(key, "-"); };
  const std::string used = number("pages_used");
  std::string state = worker.Text("state");
  if (state == "draining") {
    state += Format(", {:.0f} s left", worker.Number("drain_left_seconds"));
  } else if (worker.Flag("full")) {
    state += ", full";
  }
  return Format(kRow, worker.Text("name"), worker.Text("role"), number("requests"),
                number("running"), number("held"), number("reserved"),
                used == "-" ? used : Format("{}/{}", used, number("pages_total")),
                number("prefill_tokens"), number("decode_tokens"), number("handovers"), state);
}

}  // namespace

Result<std::string> ClusterText(const Json& status) {
  std::optional<Error> fault;
  const Members top(status, "", fault);
  std::string text = Format(kRow, "worker", "role", "requests", "running", "held", "reserved",
                            "pages", "prefilled", "decoded", "handovers", "state");
  for (const Members& worker : top.Each("workers")) text += WorkerRow(worker);
  text += Format("{} requests, {} without a first token, {} waiting for a worker; policy {}\n",
                 top.Whole("live"), top.Whole("waiting"), top.Whole("queued"), top.Text("policy"));
  if (const auto threshold = top.Find("disaggregate")) text += ThresholdText(*threshold);
  if (fault) return *fault;
  return text;
}

Result<bool> DrainsStill(const Json& status, const std::string& worker) {
  std::optional<Error> fault;
  bool busy = false;
  for (const Members& each : Members(status, "", fault).Each("workers")) {
    const bool meant = each.Text("name") == worker || each.Text("id") == worker;
    busy |= meant && each.Flag("draining") && each.Whole("requests") > 0;
  }
  if (fault) return *fault;
  return busy;
}

}  // namespace divisi
