// Rules about the text of single files, and the reading of C++ that the other rules share.
#include <algorithm>
#include <array>
#include <cctype>

#include "divisi/core/format.h"
#include "tests/tidy_lines.h"
#include "tests/tidy_rules.h"

namespace divisi {
namespace {

constexpr size_t kMaxLines = 1000;
constexpr size_t kLinesWithoutReason = 500;
constexpr size_t kMaxFunctionLines = 70;
constexpr size_t kMaxColumns = 100;
constexpr size_t kMaxBytes = size_t{1} << 20;

// Files over kLinesWithoutReason, each with why it is one thing. Empty so far.
constexpr std::array<std::string_view, 0> kLongFiles = {};

enum class Brace { kScope, kFunction, kOther };

// What a brace opens, by the text since the last ';', '{' or '}'.
Brace Classify(std::string_view head) {
  const bool called = head.find('(') != head.npos;
  constexpr std::array kScopes = {"namespace", "class", "struct", "enum", "union", "extern"};
  const bool scope = std::any_of(kScopes.begin(), kScopes.end(),
                                 [&](const char* word) { return HasWord(head, word); });
  if (scope && (!called || HasWord(head, "alignas"))) return Brace::kScope;
  return called ? Brace::kFunction : Brace::kOther;
}

struct Function {
  size_t first_line;  // Of its body.
  size_t last_line;
};

// Functions at namespace or class level, found by matching braces.
std::vector<Function> FunctionsOf(std::string_view code) {
  std::vector<Function> functions;
  std::vector<std::pair<Brace, size_t>> open;  // With the line.
  size_t line = 1, head = 0;
  const auto inside = [&](Brace kind) {
    return std::any_of(open.begin(), open.end(), [&](const auto& b) { return b.first == kind; });
  };
  for (size_t i = 0; i < code.size(); ++i) {
    line += code[i] == '\n';
    if (code[i] != '{' && code[i] != '}' && code[i] != ';') continue;
    if (code[i] == '{') {
      open.emplace_back(Classify(code.substr(head, i - head)), line);
    } else if (code[i] == '}' && !open.empty()) {
      const auto [kind, first_line] = open.back();
      open.pop_back();
      if (kind == Brace::kFunction && !inside(Brace::kFunction) && !inside(Brace::kOther)) {
        functions.push_back({first_line, line});
      }
    }
    head = i + 1;
  }
  return functions;
}

}  // namespace

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

bool IsCpp(std::string_view path) { return path.ends_with(".cc") || path.ends_with(".h"); }

bool IsTestCode(std::string_view path) {
  return path.starts_with("tests/") || path.starts_with("bench/") || path.ends_with("_test.cc") ||
         path.ends_with("_fuzz.cc");
}

std::string CodeOnly(std::string_view text) {
  std::string code(text);
  const auto blank = [&](size_t from, size_t to) {
    for (size_t i = from; i < std::min(to, code.size()); ++i) {
      if (code[i] != '\n') code[i] = ' ';
    }
  };
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    if (text.substr(i, 2) == "//") {
      end = std::min(text.find('\n', i), text.size());
      blank(i, end);
    } else if (text.substr(i, 2) == "/*") {
      end = std::min(text.find("*/", i), text.size() - 2) + 2;
      blank(i, end);
    } else if (text.substr(i, 2) == "R\"") {
      const size_t open = text.find('(', i);
      const std::string close = ")" + std::string(text.substr(i + 2, open - i - 2)) + "\"";
      end = std::min(text.find(close, i), text.size() - close.size()) + close.size();
      blank(i + 2, end - 1);
    } else if (text[i] == '"' || (text[i] == '\'' && (i == 0 || !std::isalnum(text[i - 1])))) {
      while (end < text.size() && text[end] != text[i] && text[end] != '\n') {
        end += text[end] == '\\' ? 2 : 1;
      }
      // The path of an #include stays.
      const size_t line = text.rfind('\n', i) + 1;
      if (!text.substr(line).starts_with("#include")) blank(i + 1, end);
      ++end;
    }
    i = end;
  }
  return code;
}

TidyFindings CheckFileLengths(const TidyTree& tree) {
  TidyFindings findings;
  for (const auto& [path, text] : tree) {
    if (!IsCpp(path) && !path.ends_with(".mjs")) continue;
    const size_t count = Lines(text).size();
    const bool listed = std::find(kLongFiles.begin(), kLongFiles.end(), path) != kLongFiles.end();
    if (count > kMaxLines || (count > kLinesWithoutReason && !listed)) {
      findings.push_back(
          Format("{}:{}: a file of {} lines; split it by subject", path, count, count));
    }
  }
  return findings;
}

TidyFindings CheckFunctionLengths(const TidyTree& tree) {
  TidyFindings findings;
  for (const auto& [path, text] : tree) {
    if (!IsCpp(path)) continue;
    const std::string code = CodeOnly(text);
    for (const Function& function : FunctionsOf(code)) {
      const size_t count = function.last_line - function.first_line + 1;
      if (count <= kMaxFunctionLines) continue;
      findings.push_back(Format("{}:{}: a function of {} lines; name its parts", path,
                                function.first_line, count));
    }
  }
  return findings;
}

TidyFindings CheckLineLengths(const TidyTree& tree) {
  TidyFindings findings;
  for (const auto& [path, text] : tree) {
    if (!IsCpp(path) && !path.ends_with("CMakeLists.txt")) continue;
    const auto lines = Lines(text);
    const std::string code = IsTestCode(path) ? CodeOnly(text) : text;
    const auto code_lines = Lines(code);
    for (size_t i = 0; i < lines.size(); ++i) {
      // Columns are characters: continuation bytes of UTF-8 take none.
      const auto columns = std::count_if(lines[i].begin(), lines[i].end(),
                                         [](char c) { return (c & 0xC0) != 0x80; });
      if (static_cast<size_t>(columns) <= kMaxColumns) continue;
      const auto blanks = std::count(code_lines[i].begin(), code_lines[i].end(), ' ');
      if (IsTestCode(path) && lines[i].size() - static_cast<size_t>(blanks) <= kMaxColumns)
        continue;
      findings.push_back(
          Format("{}:{}: {} columns; at most {}", path, i + 1, columns, kMaxColumns));
    }
  }
  return findings;
}

TidyFindings CheckLargeFiles(const TidyTree& tree) {
  TidyFindings findings;
  for (const auto& [path, text] : tree) {
    if (path.starts_with("models/") || text.size() <= kMaxBytes) continue;
    findings.push_back(Format("{}:1: {} bytes; only models/ holds large files", path, text.size()));
  }
  return findings;
}

TidyFindings CheckLeftovers(const TidyTree& tree) {
  // Written in two parts, or this file would find itself.
  const std::array<std::string, 3> marks = {std::string("FIX") + "ME", std::string("TO") + "DO",
                                            std::string("XX") + "X"};
  TidyFindings findings;
  for (const auto& [path, text] : tree) {
    if (!IsCpp(path) && !path.ends_with(".md") && !path.ends_with(".mjs") &&
        !path.ends_with(".cmake") && !path.ends_with(".sh") && !path.ends_with(".txt")) {
      continue;
    }
    const auto lines = Lines(text);
    for (size_t i = 0; i < lines.size(); ++i) {
      for (const std::string& mark : marks) {
        if (!HasWord(lines[i], mark)) continue;
        findings.push_back(Format("{}:{}: a leftover {}; do it or file it", path, i + 1, mark));
      }
    }
  }
  return findings;
}

bool HasWord(std::string_view line, std::string_view word) {
  const auto part_of_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  for (size_t at = line.find(word); at != line.npos; at = line.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool starts = at == 0 || !part_of_name(word.front()) || !part_of_name(line[at - 1]);
    const bool ends = end == line.size() || !part_of_name(word.back()) || !part_of_name(line[end]);
    if (starts && ends) return true;
  }
  return false;
}

}  // namespace divisi
