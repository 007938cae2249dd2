#include "divisi/control/etcd_json.h"

#include <array>
#include <charconv>

#include "divisi/core/format.h"

namespace divisi {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

Json Text(int64_t number) { return Json(Format("{}", number)); }

}  // namespace

std::string Base64(std::string_view bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - at);
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i) {
      bits = bits << 8 | (i < count ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    }
    for (size_t i = 0; i < 4; ++i) {
      text += i <= count ? kDigits[bits >> (18 - 6 * i) & 63] : '=';
    }
  }
  return text;
}

std::optional<std::string> FromBase64(std::string_view text) {
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  while (text.ends_with('=')) text.remove_suffix(1);
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == kDigits.npos) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 255);
  }
  return bytes;
}

std::string RangeEnd(std::string prefix) {
  while (static_cast<unsigned char>(prefix.back()) == 255) prefix.pop_back();
  ++prefix.back();
  return prefix;
}

int64_t EtcdNumber(const Json& object, std::string_view member) {
  const Json* value = object.Find(member);
  if (value == nullptr) return 0;
  if (value->is_int()) return value->as_int();
  int64_t number = 0;
  if (value->is_string()) {
    const std::string& text = value->as_string();
    std::from_chars(text.data(), text.data() + text.size(), number);
  }
  return number;
}

std::string EtcdBytes(const Json& object, std::string_view member) {
  const Json* value = object.Find(member);
  if (value == nullptr || !value->is_string()) return "";
  return FromBase64(value->as_string()).value_or("");
}

Json EtcdLeaseCall(int64_t lease) { return Json(Json::Object{{"ID", Text(lease)}}); }

Json EtcdPut(const std::string& key, const std::string& value, int64_t lease) {
  return Json(Json::Object{{"key", Base64(key)}, {"value", Base64(value)}, {"lease", Text(lease)}});
}

Json EtcdRange(const std::string& prefix) {
  return Json(Json::Object{{"key", Base64(prefix)}, {"range_end", Base64(RangeEnd(prefix))}});
}

Json EtcdWatchFrom(const std::string& prefix, int64_t revision) {
  Json request = EtcdRange(prefix);
  request.Set("start_revision", Text(revision));
  return Json(Json::Object{{"create_request", std::move(request)}});
}

Json EtcdAbsent(const std::string& key, bool prefix) {
  Json compare = Json(Json::Object{
      {"key", Base64(key)}, {"target", "CREATE"}, {"result", "EQUAL"}, {"create_revision", "0"}});
  if (prefix) compare.Set("range_end", Base64(RangeEnd(key)));
  return compare;
}

}  // namespace divisi
