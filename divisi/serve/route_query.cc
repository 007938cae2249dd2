#include "divisi/serve/route_query.h"

#include <charconv>
#include <optional>
#include <utility>

#include "divisi/control/member_keys.h"
#include "divisi/core/format.h"
#include "divisi/core/json.h"

namespace divisi {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 30;

Result<int64_t> WholeNumber(const std::string& text, int64_t most) {
  int64_t number = -1;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && at == end && number >= 1 && number <= most) return number;
  return Error{Code::kInvalidArgument, Format("'{}' is no whole number from 1 to {}", text, most)};
}

// TIER=TOKENS@NAME
Result<RouteQuestion::Held> HeldOf(const std::string& word, const Registry& registry) {
  constexpr std::pair<const char*, Tier> kNames[] = {{"device", Tier::kDevice},
                                                     {"host", Tier::kHost},
                                                     {"disk", Tier::kDisk},
                                                     {"pool", Tier::kRemote}};
  const size_t equals = word.find('='), at = word.find('@');
  for (const auto& [name, tier] : kNames) {
    if (equals == std::string::npos || at == std::string::npos || at < equals) break;
    if (word.substr(0, equals) != name) continue;
    ASSIGN_OR_RETURN(const int64_t tokens,
                     WholeNumber(word.substr(equals + 1, at - equals - 1), kMostTokens));
    ASSIGN_OR_RETURN(const NodeId node, registry.Named(word.substr(at + 1)));
    return RouteQuestion::Held{node, tier, tokens};
  }
  return Error{Code::kInvalidArgument,
               Format("'{}' is not TIER=TOKENS@NAME, as in host=8192@worker-1; tiers are device, "
                      "host, disk and pool",
                      word)};
}

// Of a prompt that might come.
Result<Json> RoutesFor(const std::vector<std::string>& words, const GatewayCore& gateway,
                       const RouteLog::Name& name, Seconds now) {
  RouteQuestion question;
  ASSIGN_OR_RETURN(question.prompt_tokens, WholeNumber(words[2], kMostTokens));
  for (size_t i = 3; i < words.size(); ++i) {
    ASSIGN_OR_RETURN(const RouteQuestion::Held held, HeldOf(words[i], gateway.registry()));
    question.held.push_back(held);
  }
  const auto choice = gateway.dispatcher().Explain(question, now);
  if (!choice)
    return Error{
        Code::kUnavailable,
        "no worker could take it now: none has room, or none is there; see divisi cluster status"};
  Json route = RouteJson(*choice, question.prompt_tokens, name);
  Json routes = Json::MakeArray();
  routes.Append(std::move(route));
  return routes;
}

Result<Json> RoutesAsked(const std::vector<std::string>& words, const GatewayCore& gateway,
                         const RouteLog& log, Seconds now) {
  const auto name = [&](NodeId node) { return WorkerName(gateway, node); };
  const std::string kind = words.size() >= 3 ? words[1] : "";
  if (kind == "for") return RoutesFor(words, gateway, name, now);
  if (kind == "last" && words.size() == 3) {
    ASSIGN_OR_RETURN(const int64_t count, WholeNumber(words[2], RouteLog::kMostShown));
    return log.Last(static_cast<size_t>(count), name, now);
  }
  if (kind == "request" && words.size() == 3) {
    Json routes = log.Of(words[2], name, now);
    if (!routes.as_array().empty()) return routes;
    return Error{Code::kNotFound,
                 Format("request '{}' is not among the last {} choices of this gateway", words[2],
                        RouteLog::kMost)};
  }
  return Error{Code::kInvalidArgument,
               "expected routes last N, routes request ID, or routes for N [TIER=TOKENS@NAME]..."};
}

}  // namespace

bool AsksForRoutes(const std::vector<std::string>& words) {
  return !words.empty() && words[0] == "routes";
}

std::string WorkerName(const GatewayCore& gateway, NodeId node) {
  const auto& members = gateway.registry().members();
  const auto member = members.find(node);
  return member == members.end() ? NodeText(node) : member->second.hello.name;
}

Result<std::string> AnswerRoutes(const std::vector<std::string>& words, const GatewayCore& gateway,
                                 const RouteLog& log, Seconds now) {
  ASSIGN_OR_RETURN(Json routes, RoutesAsked(words, gateway, log, now));
  const DispatcherOptions& options = gateway.dispatcher().options();
  Json out = Json::MakeObject();
  out.Set("policy", PolicyName(options.policy));
  out.Set("objective", ObjectiveName(options.objective));
  out.Set("quantile", options.quantile ? Json(*options.quantile) : Json());
  out.Set("routes", std::move(routes));
  return out.Dump();
}

}  // namespace divisi
