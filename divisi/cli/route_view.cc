#include "divisi/cli/route_view.h"

#include <optional>

#include "divisi/cli/json_members.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

constexpr const char* kRow = "{:<2}{:<24}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}  {}\n";

// "960 of 1000 tokens: 480 device, 480 disk; odds 0.90; reading 0.48, after 2.00", as far as it is
// there.
std::string NotesOf(const JsonMembers& candidate) {
  const auto ms = [&](const char* key) { return candidate.Number(key) * 1e3; };
  std::string parts, notes;
  const auto add = [&notes](const std::string& note) {
    notes += notes.empty() ? note : "; " + note;
  };
  for (const char* part : {"device", "host", "disk", "pool", "peer", "awaited"}) {
    const int64_t tokens = candidate.Whole(Format("{}_tokens", part).c_str());
    if (tokens == 0) continue;
    parts += Format("{}{} {}", parts.empty() ? "" : ", ", tokens, part);
    if (part == std::string_view("peer")) parts += " " + candidate.Text("peer");
  }
  add(parts.empty() ? "computed" : parts);
  if (candidate.Number("odds") < 1) add(Format("odds {:.3f}", candidate.Number("odds")));
  if (ms("reading_seconds") > 0) {
    add(Format("reading {:.2f} after {:.2f}", ms("reading_seconds"),
               ms("lookup_seconds") + ms("links_seconds")));
  }
  if (candidate.Text("way") == "apart") {
    add(Format("sending {:.2f}, step {:.2f}", ms("transfer_seconds"), ms("step_seconds")));
    if (candidate.Whole("present_tokens") > 0) {
      add(Format("{} there", candidate.Whole("present_tokens")));
    }
  }
  if (ms("delay_seconds") > 0) add(Format("others {:.2f} later", ms("delay_seconds")));
  return notes;
}

std::string CandidateRow(const JsonMembers& candidate) {
  const auto ms = [&](const char* key) { return Format("{:.2f}", candidate.Number(key) * 1e3); };
  std::string name = candidate.Text("worker");
  if (candidate.Text("way") == "apart") name = candidate.Text("prefill") + "->" + name;
  return Format(kRow, candidate.Flag("chosen") ? "*" : "", name, ms("queue_seconds"),
                ms("ready_seconds"), ms("compute_seconds"), ms("ttft_seconds"),
                ms("expected_seconds"), ms("cost_seconds"), NotesOf(candidate));
}

}  // namespace

Result<std::string> RoutesText(const Json& answer) {
  std::optional<Error> fault;
  const JsonMembers top(answer, "", fault);
  const Json* quantile = answer.Find("quantile");
  const bool mean = quantile != nullptr && quantile->is_null();
  const std::string rules =
      Format("policy {}, objective {}, expected: {}", top.Text("policy"), top.Text("objective"),
             mean ? std::string("mean") : Format("quantile {:.4g}", top.Number("quantile")));
  std::string text;
  for (const JsonMembers& route : top.Each("routes")) {
    if (!text.empty()) text += "\n";
    // One that might come has no request.
    if (route.Find("request")) {
      const std::string request = route.Text("request");
      const int64_t attempt = route.Whole("attempt");
      text += Format("request {}, attempt {}, {:.1f} s ago: ", request, attempt,
                     route.Number("seconds_ago"));
    }
    text += Format("{} tokens; {}\n", route.Whole("prompt_tokens"), rules);
    text += Format(kRow, "", "times in ms", "queue Q", "ready R", "compute C", "T", "expected",
                   "cost", "prefix");
    for (const JsonMembers& candidate : route.Each("candidates")) text += CandidateRow(candidate);
    if (!route.Find("elsewhere")) continue;
    for (const JsonMembers& held : route.Each("elsewhere")) {
      text += Format("  {} holds {} tokens ({}), and takes no requests from here\n",
                     held.Text("engine"), held.Whole("tokens"), held.Text("tier"));
    }
  }
  if (fault) return *fault;
  if (text.empty()) return std::string("no choices yet\n");
  return text;
}

}  // namespace divisi
