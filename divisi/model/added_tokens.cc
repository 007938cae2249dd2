#include "divisi/model/added_tokens.h"

#include <algorithm>

#include "divisi/core/utf8.h"
#include "divisi/model/unicode.h"

namespace divisi {
namespace {

constexpr std::string_view kWordPattern =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}])";  // Unicode Technical Standard 18, \w.

// Where the character that ends at `position` begins. Requires: position > 0.
size_t Before(std::string_view text, size_t position) {
  do {
    --position;
  } while (position > 0 && IsUtf8Continuation(text[position]));
  return position;
}

bool IsWhiteSpaceAt(std::string_view text, size_t position, int length) {
  return IsWhiteSpace(DecodeUtf8(text, position, length));
}

size_t SkipWhiteSpaceBack(std::string_view text, size_t position, size_t floor) {
  while (position > floor) {
    const size_t begin = Before(text, position);
    if (!IsWhiteSpaceAt(text, begin, static_cast<int>(position - begin))) break;
    position = begin;
  }
  return position;
}

size_t SkipWhiteSpace(std::string_view text, size_t position) {
  while (position < text.size()) {
    const int length = StepUtf8(text, position).length;
    if (!IsWhiteSpaceAt(text, position, length)) break;
    position += length;
  }
  return position;
}

}  // namespace

Result<AddedTokenFinder> AddedTokenFinder::Make(std::span<const AddedToken> tokens) {
  AddedTokenFinder finder;
  finder.nodes_.emplace_back();
  finder.tokens_.assign(tokens.begin(), tokens.end());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const size_t bytes = tokens[i].content.size();
    if (bytes == 0 || bytes > kMaxContentBytes) {
      return Error{Code::kInvalidArgument, Format("added token {} has {} bytes, not 1..{}",
                                                  tokens[i].id, bytes, kMaxContentBytes)};
    }
    finder.Insert(tokens[i].content, static_cast<int32_t>(i));
    if (tokens[i].single_word && !finder.word_) {
      ASSIGN_OR_RETURN(finder.word_, Regex::Compile(kWordPattern));
    }
  }
  return finder;
}

void AddedTokenFinder::Insert(std::string_view content, int32_t token) {
  begins_[static_cast<unsigned char>(content[0])] = true;
  uint32_t node = 0;
  for (const char c : content) {
    const auto byte = static_cast<unsigned char>(c);
    std::vector<Edge>& edges = nodes_[node].edges;
    const auto edge = std::ranges::lower_bound(edges, byte, {}, &Edge::byte);
    if (edge != edges.end() && edge->byte == byte) {
      node = edge->target;
    } else {
      node = static_cast<uint32_t>(nodes_.size());
      edges.insert(edge, {byte, node});
      nodes_.emplace_back();  // Invalidates `edges`.
    }
  }
  if (nodes_[node].token < 0) nodes_[node].token = token;
}

AddedTokenFinder::Found AddedTokenFinder::LongestAt(std::string_view text, size_t position) const {
  Found found;
  uint32_t node = 0;
  for (size_t i = position; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::vector<Edge>& edges = nodes_[node].edges;
    const auto edge = std::ranges::lower_bound(edges, byte, {}, &Edge::byte);
    if (edge == edges.end() || edge->byte != byte) break;
    node = edge->target;
    if (nodes_[node].token >= 0) found = {nodes_[node].token, i + 1 - position};
  }
  return found;
}

bool AddedTokenFinder::TouchesWord(std::string_view text, size_t begin, size_t end,
                                   Matcher& matcher) const {
  const auto is_word = [&](size_t from, size_t to) {
    return matcher.Find(*word_, text.substr(from, to - from), 0, std::nullopt).has_value();
  };
  if (begin > 0 && is_word(Before(text, begin), begin)) return true;
  return end < text.size() && is_word(end, end + StepUtf8(text, end).length);
}

std::vector<AddedTokenFinder::Section> AddedTokenFinder::Divide(std::string_view text,
                                                                Matcher& matcher) const {
  std::vector<Section> sections;
  size_t taken = 0;  // Everything before is in a section or stripped.
  for (size_t i = 0; i < text.size();) {
    const Found found = begins_[static_cast<unsigned char>(text[i])] ? LongestAt(text, i) : Found{};
    if (found.token < 0) {
      ++i;
      continue;
    }
    const AddedToken& token = tokens_[found.token];
    size_t begin = i;
    size_t end = i + found.length;
    i = end;
    if (token.single_word && TouchesWord(text, begin, end, matcher)) continue;
    if (token.lstrip) begin = SkipWhiteSpaceBack(text, begin, taken);
    if (token.rstrip) i = end = SkipWhiteSpace(text, end);
    if (taken < begin) sections.push_back({text.substr(taken, begin - taken), std::nullopt});
    sections.push_back({text.substr(begin, end - begin), token.id});
    taken = end;
  }
  if (taken < text.size()) sections.push_back({text.substr(taken), std::nullopt});
  return sections;
}

}  // namespace divisi
