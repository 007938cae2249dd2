#include "divisi/model/jinja_print.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "divisi/model/jinja_ast.h"
#include "divisi/model/jinja_builtins.h"
#include "divisi/model/jinja_text.h"
#include "divisi/model/unicode.h"

namespace divisi {
namespace {

// Python writes a string in the quote that it does not contain, preferring '.
void AppendRepr(std::string_view text, std::string& out) {
  const bool single = text.find('\'') == text.npos || text.find('"') != text.npos;
  const char quote = single ? '\'' : '"';
  out += quote;
  for (const std::string_view part : CodePoints(text)) {
    const uint32_t c = static_cast<uint32_t>(FirstCodePoint(part));
    if (part[0] == quote || part[0] == '\\') {
      out += '\\';
      out += part;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (IsPrintable(c)) {
      out += part;
    } else if (c < 0x100) {
      out += Format("\\x{:02x}", c);
    } else if (c < 0x10000) {
      out += Format("\\u{:04x}", c);
    } else {
      out += Format("\\U{:08x}", c);
    }
  }
  out += quote;
}

class Printer {
 public:
  explicit Printer(JinjaBudget& budget) : budget_(budget) {}

  Result<void> Append(const JinjaValue& value, std::string& out) {
    if (!budget_.Make(16)) return BudgetError();
    if (value.is_string()) {
      const size_t size = value.as_string().size();
      if (!budget_.Map(size) || !budget_.Make(size)) return BudgetError();
      AppendRepr(value.as_string(), out);
      return {};
    }
    if (value.is_sequence()) return AppendSequence(value.as_sequence(), out);
    if (value.is_dict()) return AppendDict(value.as_dict(), out);
    if (value.Is<JinjaNamespace*>()) return AppendNamespace(*value.as_namespace(), out);
    AppendScalar(value, out);
    return {};
  }

 private:
  void AppendScalar(const JinjaValue& value, std::string& out) {
    if (value.is_none()) {
      out += "None";
    } else if (value.is_bool()) {
      out += value.as_bool() ? "True" : "False";
    } else if (value.is_integer()) {
      out += Format("{}", value.as_integer());
    } else if (value.is_number()) {
      out += FloatText(value.as_double());
    } else if (value.is_undefined()) {
      out += "Undefined";
    } else if (value.Is<const JinjaMacro*>()) {
      out += Format("<Macro '{}'>", value.as_macro()->name);
    } else {
      out += Format("<{}>", value.TypeName());
    }
  }

  Result<void> AppendItems(const std::vector<JinjaValue>& items, std::string& out) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += ", ";
      RETURN_IF_ERROR(Append(items[i], out));
    }
    return {};
  }

  Result<void> AppendSequence(const JinjaSequence& sequence, std::string& out) {
    switch (sequence.kind) {
      case JinjaSequence::Kind::kTuple:
        out += '(';
        RETURN_IF_ERROR(AppendItems(sequence.items, out));
        out += sequence.items.size() == 1 ? ",)" : ")";
        return {};
      case JinjaSequence::Kind::kRange:
      case JinjaSequence::Kind::kView:
      case JinjaSequence::Kind::kIterator:
        return Error{Code::kUnimplemented,
                     "the text of a range, view or lazy sequence; put it through | list"};
      case JinjaSequence::Kind::kList:
        break;
    }
    out += '[';
    RETURN_IF_ERROR(AppendItems(sequence.items, out));
    out += ']';
    return {};
  }

  Result<void> AppendDict(const JinjaDict& dict, std::string& out) {
    out += '{';
    bool first = true;
    for (const auto& [key, value] : dict.entries) {
      if (!first) out += ", ";
      first = false;
      RETURN_IF_ERROR(Append(key, out));
      out += ": ";
      RETURN_IF_ERROR(Append(value, out));
    }
    out += '}';
    return {};
  }

  Result<void> AppendNamespace(const JinjaNamespace& space, std::string& out) {
    // Namespaces alone can contain themselves.
    if (++namespaces_ > kMaxNamespaces) {
      return TypeError("a namespace that contains itself has no text");
    }
    out += "<Namespace {";
    bool first = true;
    for (const auto& [key, value] : space.attributes) {
      if (!first) out += ", ";
      first = false;
      AppendRepr(key, out);
      out += ": ";
      RETURN_IF_ERROR(Append(value, out));
    }
    out += "}>";
    --namespaces_;
    return {};
  }

  static constexpr int kMaxNamespaces = 4;  // Inside one another; nobody prints even one.
  JinjaBudget& budget_;
  int namespaces_ = 0;
};

void AppendJsonString(std::string_view text, bool ascii, std::string& out) {
  out += '"';
  for (const std::string_view part : CodePoints(text)) {
    const uint32_t c = static_cast<uint32_t>(FirstCodePoint(part));
    constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t";
    constexpr std::string_view kLetters = "\"\\bfnrt";
    if (const size_t at = part.size() == 1 ? kEscaped.find(part[0]) : kEscaped.npos;
        at != kEscaped.npos) {
      out += '\\';
      out += kLetters[at];
    } else if (c < 0x20 || (ascii && c > 0x7E && c < 0x10000)) {
      out += Format("\\u{:04x}", c);
    } else if (ascii && c >= 0x10000) {
      out += Format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10),
                    0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      out += part;
    }
  }
  out += '"';
}

std::string JsonFloat(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return FloatText(value);
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, JinjaBudget& budget) : style_(style), budget_(budget) {}

  Result<void> Append(const JinjaValue& value, int level, std::string& out) {
    const size_t separators = style_.item_separator.size() + style_.key_separator.size();
    if (!budget_.Make(16 + separators)) return BudgetError();
    if (value.is_string()) {
      if (!budget_.Make(value.as_string().size())) return BudgetError();
      AppendJsonString(value.as_string(), style_.ascii, out);
    } else if (value.is_sequence() && value.as_sequence().kind <= JinjaSequence::Kind::kTuple) {
      return AppendList(value.as_sequence(), level, out);
    } else if (value.is_dict()) {
      return AppendDict(value.as_dict(), level, out);
    } else if (value.is_none() || value.is_number()) {
      out += Scalar(value);
    } else {
      return TypeError(Format("a value of type {} cannot be written as JSON", value.TypeName()));
    }
    return {};
  }

 private:
  static std::string Scalar(const JinjaValue& value) {
    if (value.is_none()) return "null";
    if (value.is_bool()) return value.as_bool() ? "true" : "false";
    return value.is_integer() ? Format("{}", value.as_integer()) : JsonFloat(value.as_double());
  }

  Result<void> NewLine(int level, std::string& out) {
    if (!style_.indented) return {};
    if (!budget_.Make(style_.indent.size() * static_cast<size_t>(level))) return BudgetError();
    out += '\n';
    for (int i = 0; i < level; ++i) out += style_.indent;
    return {};
  }

  Result<void> AppendList(const JinjaSequence& list, int level, std::string& out) {
    out += '[';
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      RETURN_IF_ERROR(NewLine(level + 1, out));
      RETURN_IF_ERROR(Append(list.items[i], level + 1, out));
    }
    if (!list.items.empty()) RETURN_IF_ERROR(NewLine(level, out));
    out += ']';
    return {};
  }

  Result<void> AppendDict(const JinjaDict& dict, int level, std::string& out) {
    std::vector<const JinjaDict::Entry*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      for (const auto* entry : entries) {
        if (!entry->first.is_string()) return TypeError("sort_keys needs keys that are strings");
      }
      std::sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
        return a->first.as_string() < b->first.as_string();
      });
    }
    out += '{';
    bool first = true;
    for (const auto* entry : entries) {
      if (!first) out += style_.item_separator;
      first = false;
      RETURN_IF_ERROR(NewLine(level + 1, out));
      const JinjaValue& key = entry->first;
      if (!budget_.Make(key.is_string() ? key.as_string().size() : 16)) return BudgetError();
      AppendJsonString(key.is_string() ? key.as_string() : Scalar(key), style_.ascii, out);
      out += style_.key_separator;
      RETURN_IF_ERROR(Append(entry->second, level + 1, out));
    }
    if (!first) RETURN_IF_ERROR(NewLine(level, out));
    out += '}';
    return {};
  }

  const JsonStyle& style_;
  JinjaBudget& budget_;
};

}  // namespace

Result<std::string> Printed(const JinjaValue& value, JinjaBudget& budget) {
  if (value.is_undefined()) return std::string();
  if (value.is_string()) {
    if (!budget.Make(value.as_string().size())) return BudgetError();
    return value.as_string();
  }
  std::string out;
  RETURN_IF_ERROR(Printer(budget).Append(value, out));
  return out;
}

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // The shortest digits that read back the same; as an exponent below 1e-4 and from 1e16 on.
  char buffer[64];
  const double size = std::fabs(value);
  const bool exponent = size != 0 && (size < 1e-4 || size >= 1e16);
  const auto format = exponent ? std::chars_format::scientific : std::chars_format::fixed;
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, format).ptr;
  std::string text(buffer, end);
  if (!exponent && text.find('.') == std::string::npos) text += ".0";
  return text;
}

Result<std::string> ToJsonText(const JinjaValue& value, const JsonStyle& style,
                               JinjaBudget& budget) {
  std::string out;
  RETURN_IF_ERROR(JsonWriter(style, budget).Append(value, 0, out));
  return out;
}

}  // namespace divisi
