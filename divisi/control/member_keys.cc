#include "divisi/control/member_keys.h"

#include <charconv>

#include "divisi/core/format.h"
#include "divisi/core/json.h"

namespace divisi {

std::string NodeText(NodeId node) { return Format("{:016x}", node.value); }

std::string GatewayKey(NodeId gateway) { return "gateway/" + NodeText(gateway); }
std::string WorkerKey(NodeId worker) { return "worker/" + NodeText(worker); }
std::string DeadKey(NodeId worker) { return "dead/" + NodeText(worker); }
std::string ReachPrefix(NodeId worker) { return "reach/" + NodeText(worker) + "/"; }
std::string ReachKey(NodeId worker, NodeId gateway) {
  return ReachPrefix(worker) + NodeText(gateway);
}

std::optional<MemberKey> ParseMemberKey(std::string_view key) {
  constexpr std::pair<std::string_view, MemberKind> kKinds[] = {{"gateway/", MemberKind::kGateway},
                                                                {"worker/", MemberKind::kWorker},
                                                                {"dead/", MemberKind::kDead}};
  for (const auto& [prefix, kind] : kKinds) {
    if (!key.starts_with(prefix)) continue;
    const std::string_view id = key.substr(prefix.size());
    MemberKey parsed{kind, {}};
    const auto [end, status] =
        std::from_chars(id.data(), id.data() + id.size(), parsed.node.value, 16);
    if (id.size() != 16 || status != std::errc() || end != id.data() + id.size()) break;
    return parsed;
  }
  return std::nullopt;
}

std::string GatewayRecord(const GatewayAddress& address) {
  return Json(Json::Object{{"host", address.host}, {"port", address.port}}).Dump();
}

Result<GatewayAddress> ParseGatewayRecord(const std::string& text) {
  const auto record = Json::Parse(text);
  const Json* host = record ? record->Find("host") : nullptr;
  const Json* port = record ? record->Find("port") : nullptr;
  const bool good = host != nullptr && host->is_string() && port != nullptr && port->is_int() &&
                    port->as_int() > 0 && port->as_int() < 65536;
  if (!good) return Error{Code::kDataLoss, Format("'{}' is no gateway's address", text)};
  return GatewayAddress{host->as_string(), static_cast<int>(port->as_int())};
}

std::string WorkerRecord(const HelloMessage& hello) {
  const Compatibility& c = hello.compatibility;
  return Json(Json::Object{{"name", hello.name},
                           {"role", RoleName(hello.role)},
                           {"protocol", static_cast<int64_t>(c.protocol)},
                           {"model", c.model},
                           {"tokenizer", c.tokenizer},
                           {"kv_type", c.kv_type},
                           {"kv_layout", c.kv_layout},
                           {"page_tokens", static_cast<int64_t>(c.page_tokens)},
                           {"pages", hello.pages},
                           {"max_sequences", hello.max_sequences},
                           {"context", hello.context},
                           {"data_address", hello.data_address}})
      .Dump();
}

}  // namespace divisi
