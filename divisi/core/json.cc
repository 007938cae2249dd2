#include "divisi/core/json.h"

#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "divisi/core/utf8.h"

namespace divisi {
namespace {

Json FromElement(const simdjson::dom::element& element) {
  using simdjson::dom::element_type;
  switch (element.type()) {
    case element_type::NULL_VALUE:
      return {};
    case element_type::BOOL:
      return bool(element);
    case element_type::INT64:
      return int64_t(element);
    case element_type::UINT64:
      return uint64_t(element);
    case element_type::DOUBLE:
      return double(element);
    case element_type::STRING:
      return std::string_view(element);
    case element_type::ARRAY: {
      const simdjson::dom::array source(element);
      Json::Array array;
      array.reserve(source.size());
      for (const auto child : source) array.push_back(FromElement(child));
      return array;
    }
    case element_type::OBJECT: {
      const simdjson::dom::object source(element);
      Json::Object object;
      object.reserve(source.size());
      for (const auto field : source) object.emplace_back(field.key, FromElement(field.value));
      return object;
    }
  }
  return {};
}

// Whether `number` is an integer that 64 bits do not hold.
bool IsLongInteger(std::string_view number) {
  const char* const end = number.data() + number.size();
  int64_t negative = 0;
  uint64_t positive = 0;
  const auto [stop, status] = number.front() == '-' ? std::from_chars(number.data(), end, negative)
                                                    : std::from_chars(number.data(), end, positive);
  return stop == end && status == std::errc::result_out_of_range;
}

// `text` with ".0" behind each long integer that is not inside a string.
std::string WithLongIntegersAsDoubles(std::string_view text) {
  constexpr std::string_view kOfNumbers = "0123456789+-.eE";
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < text.size();) {
    size_t count = 1;
    if (in_string && text[i] == '\\') {
      count = 2;  // What is escaped does not end the string.
    } else if (text[i] == '"') {
      in_string = !in_string;
    } else if (!in_string && kOfNumbers.find(text[i]) != std::string_view::npos) {
      count = std::min(text.find_first_not_of(kOfNumbers, i), text.size()) - i;
    }
    const std::string_view part = text.substr(i, count);
    out += part;
    if (!in_string && IsLongInteger(part)) out += ".0";
    i += count;
  }
  return out;
}

void WriteDouble(double value, std::string& out) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  out += text;
  // A whole double stays a double when read back.
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void NewLine(int indent, int depth, std::string& out) {
  if (indent < 0) return;
  out += '\n';
  out.append(static_cast<size_t>(indent) * static_cast<size_t>(depth), ' ');
}

void Write(const Json& value, int indent, int depth, std::string& out) {
  if (value.is_null()) {
    out += "null";
  } else if (value.is_bool()) {
    out += value.as_bool() ? "true" : "false";
  } else if (value.is_int()) {
    out += Format("{}", value.as_int());
  } else if (value.is_number()) {
    WriteDouble(value.as_double(), out);
  } else if (value.is_string()) {
    AppendJsonString(value.as_string(), out);
  } else if (value.is_array()) {
    out += '[';
    bool first = true;
    for (const Json& child : value.as_array()) {
      if (!first) out += ',';
      first = false;
      NewLine(indent, depth + 1, out);
      Write(child, indent, depth + 1, out);
    }
    if (!first) NewLine(indent, depth, out);
    out += ']';
  } else {
    out += '{';
    bool first = true;
    for (const auto& [key, child] : value.as_object()) {
      if (!first) out += ',';
      first = false;
      NewLine(indent, depth + 1, out);
      AppendJsonString(key, out);
      out += indent < 0 ? ":" : ": ";
      Write(child, indent, depth + 1, out);
    }
    if (!first) NewLine(indent, depth, out);
    out += '}';
  }
}

}  // namespace

void AppendJsonString(std::string_view text, std::string& out) {
  out += '"';
  for (size_t i = 0; i < text.size();) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += text[i++];
    } else if (c < 0x20) {
      constexpr std::string_view kShort = "btnvfr";  // 8..13; \v is not JSON's.
      if (c >= 8 && c <= 13 && c != 11) {
        out += '\\';
        out += kShort[c - 8];
      } else {
        out += Format("\\u{:04x}", c);
      }
      ++i;
    } else {
      const Utf8Step step = StepUtf8(text, i);
      const auto length = static_cast<size_t>(step.length);
      out += step.kind == Utf8Step::Kind::kCharacter ? text.substr(i, length) : kUtf8Replacement;
      i += length;
    }
  }
  out += '"';
}

Json::Json(uint64_t value) {
  if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    value_ = static_cast<int64_t>(value);
  } else {
    value_ = static_cast<double>(value);
  }
}

Result<Json> Json::Parse(std::string_view text) {
  simdjson::dom::parser parser;
  if (parser.allocate(std::max<size_t>(text.size(), 1), kMaxDepth) != simdjson::SUCCESS) {
    return Error{Code::kResourceExhausted,
                 Format("no memory to parse {} bytes of JSON", text.size())};
  }
  simdjson::dom::element root;
  // simdjson pads by copying, since the text may end at the end of its memory.
  auto status = parser.parse(text.data(), text.size()).get(root);
  std::string rewritten;
  if (status == simdjson::NUMBER_ERROR) {
    // simdjson has no integers beyond 64 bits; JSON has (RFC 8259, section 6).
    rewritten = WithLongIntegersAsDoubles(text);
    status = parser.parse(rewritten).get(root);
  }
  if (status != simdjson::SUCCESS) {
    return Error{Code::kInvalidArgument,
                 Format("not valid JSON: {}", simdjson::error_message(status))};
  }
  return FromElement(root);
}

const char* Json::TypeName() const {
  constexpr const char* kNames[] = {"null",   "boolean", "integer", "number",
                                    "string", "array",   "object"};
  return kNames[value_.index()];
}

double Json::as_double() const {
  return is_int() ? static_cast<double>(as_int()) : std::get<double>(value_);
}

const Json* Json::Find(std::string_view key) const {
  if (!is_object()) return nullptr;
  const Object& object = as_object();
  for (size_t i = object.size(); i-- > 0;) {
    if (object[i].first == key) return &object[i].second;
  }
  return nullptr;
}

Json& Json::Set(std::string_view key, Json value) {
  if (is_null()) value_ = Object{};
  CHECK(is_object(), "Set of a member of a {}", TypeName());
  Object& object = as_object();
  const auto same = [key](const Object::value_type& member) { return member.first == key; };
  const auto first = std::find_if(object.begin(), object.end(), same);
  if (first == object.end()) {
    object.emplace_back(std::string(key), std::move(value));
    return object.back().second;
  }
  // A repeated member that stayed behind would be the one that Find gives.
  object.erase(std::remove_if(first + 1, object.end(), same), object.end());
  first->second = std::move(value);
  return first->second;
}

void Json::Append(Json value) {
  if (is_null()) value_ = Array{};
  CHECK(is_array(), "Append to a {}", TypeName());
  as_array().push_back(std::move(value));
}

std::string Json::Dump(int indent) const {
  std::string out;
  Write(*this, indent, 0, out);
  return out;
}

}  // namespace divisi
