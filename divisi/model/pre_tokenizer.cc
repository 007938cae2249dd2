#include "divisi/model/pre_tokenizer.h"

#include <algorithm>
#include <utility>

namespace divisi {
namespace {

// Source: GPT-2, Radford et al. 2019, encoder.py.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Error Malformed(std::string_view what) {
  return {Code::kInvalidArgument, Format("pre_tokenizer: {}", what)};
}

std::string_view TypeOf(const Json& step) {
  const Json* type = step.Find("type");
  return type != nullptr && type->is_string() ? std::string_view(type->as_string())
                                              : std::string_view();
}

Result<bool> ReadFlag(const Json& step, std::string_view name, bool absent) {
  const Json* flag = step.Find(name);
  if (flag == nullptr || flag->is_null()) return absent;
  if (!flag->is_bool()) return Malformed(Format("{} is a {}", name, flag->TypeName()));
  return flag->as_bool();
}

}  // namespace

Result<PreTokenizer> PreTokenizer::Read(const Json& pre_tokenizer) {
  PreTokenizer made;
  if (TypeOf(pre_tokenizer) == "Sequence") {
    const Json* steps = pre_tokenizer.Find("pretokenizers");
    if (steps == nullptr || !steps->is_array()) return Malformed("a Sequence has no pretokenizers");
    for (const Json& step : steps->as_array()) RETURN_IF_ERROR(made.Add(step));
  } else {
    RETURN_IF_ERROR(made.Add(pre_tokenizer));
  }
  if (!made.byte_level_) {
    return Error{Code::kUnimplemented,
                 "pre_tokenizer without ByteLevel; byte-level models alone are supported"};
  }
  return made;
}

Result<void> PreTokenizer::Add(const Json& step) {
  const std::string_view type = TypeOf(step);
  if (byte_level_) {
    return Error{Code::kUnimplemented, Format("pre_tokenizer {} after ByteLevel", type)};
  }
  if (type == "Split") return AddSplit(step);
  if (type == "ByteLevel") return AddByteLevel(step);
  if (type == "Digits") {
    ASSIGN_OR_RETURN(const bool individual, ReadFlag(step, "individual_digits", false));
    ASSIGN_OR_RETURN(Regex regex, Regex::Compile("\\p{N}"));
    steps_.push_back(
        Split{std::move(regex), individual ? Behavior::kIsolated : Behavior::kContiguous});
    return {};
  }
  return Error{Code::kUnimplemented,
               Format("pre_tokenizer {}; Split, Digits and ByteLevel are supported",
                      type.empty() ? "without a type" : type)};
}

Result<void> PreTokenizer::AddSplit(const Json& step) {
  ASSIGN_OR_RETURN(const Behavior behavior, ReadBehavior(step));
  ASSIGN_OR_RETURN(const bool invert, ReadFlag(step, "invert", false));
  const Json* pattern = step.Find("pattern");
  const Json* expression = pattern != nullptr ? pattern->Find("Regex") : nullptr;
  const Json* literal = pattern != nullptr ? pattern->Find("String") : nullptr;
  const Json* text = expression != nullptr ? expression : literal;
  if (text == nullptr || !text->is_string()) {
    return Malformed("a Split has no pattern with a Regex or a String");
  }
  ASSIGN_OR_RETURN(Regex regex, expression != nullptr ? Regex::Compile(text->as_string())
                                                      : Regex::Literal(text->as_string()));
  steps_.push_back(Split{std::move(regex), behavior, invert});
  return {};
}

Result<void> PreTokenizer::AddByteLevel(const Json& step) {
  ASSIGN_OR_RETURN(const bool prefix_space, ReadFlag(step, "add_prefix_space", true));
  ASSIGN_OR_RETURN(const bool use_regex, ReadFlag(step, "use_regex", true));
  if (prefix_space) steps_.push_back(PrefixSpace{});
  if (use_regex) {
    ASSIGN_OR_RETURN(Regex regex, Regex::Compile(kGpt2Pattern));
    steps_.push_back(Split{std::move(regex)});
  }
  byte_level_ = true;
  return {};
}

Result<PreTokenizer::Behavior> PreTokenizer::ReadBehavior(const Json& split) {
  const Json* behavior = split.Find("behavior");
  if (behavior == nullptr || !behavior->is_string()) return Malformed("a Split has no behavior");
  const std::string& name = behavior->as_string();
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Contiguous") return Behavior::kContiguous;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  return Error{Code::kUnimplemented, Format("pre_tokenizer Split with behavior {}", name)};
}

Pieces PreTokenizer::Cut(std::string text, Matcher& matcher) const {
  Pieces pieces{std::move(text), {}};
  if (!pieces.text.empty()) pieces.ends.push_back(pieces.text.size());
  for (const auto& step : steps_) {
    pieces =
        std::visit([&](const auto& kind) { return Apply(kind, std::move(pieces), matcher); }, step);
  }
  return pieces;
}

// `piece` as matches and what lies between them. An empty match yields no part of its own, but it
// does divide what lies around it.
std::vector<PreTokenizer::Part> PreTokenizer::Parts(const Split& split, std::string_view piece,
                                                    Matcher& matcher) {
  std::vector<Part> parts;
  size_t end = 0;
  std::optional<size_t> last_end;
  while (const auto match = matcher.Find(split.regex, piece, end, last_end)) {
    if (match->begin > end) parts.push_back({end, match->begin, split.invert});
    parts.push_back({match->begin, match->end, !split.invert});
    end = match->end;
    last_end = end;
  }
  if (end < piece.size()) parts.push_back({end, piece.size(), split.invert});
  return parts;
}

// Source: the behaviours of NormalizedString::split in the Hugging Face library.
std::vector<PreTokenizer::Part> PreTokenizer::Join(std::vector<Part> parts, Behavior behavior) {
  if (behavior == Behavior::kRemoved) {
    std::erase_if(parts, [](const Part& part) { return part.match; });
  }
  if (behavior == Behavior::kIsolated || behavior == Behavior::kRemoved) return parts;
  // A match that goes to the next part is, seen from the end, one that goes to the previous.
  const bool backwards = behavior == Behavior::kMergedWithNext;
  if (backwards) std::ranges::reverse(parts);
  std::vector<Part> joined;
  bool last_match = false;
  for (const Part& part : parts) {
    const bool join =
        behavior == Behavior::kContiguous ? part.match == last_match : part.match && !last_match;
    if (join && !joined.empty()) {
      joined.back().begin = std::min(joined.back().begin, part.begin);
      joined.back().end = std::max(joined.back().end, part.end);
    } else {
      joined.push_back(part);
    }
    last_match = part.match;
  }
  if (backwards) std::ranges::reverse(joined);
  return joined;
}

Pieces PreTokenizer::Apply(const Split& split, Pieces pieces, Matcher& matcher) {
  Pieces cut;
  cut.ends.reserve(pieces.ends.size());
  size_t kept = 0;  // Removed parts close up.
  size_t begin = 0;
  for (const size_t end : pieces.ends) {
    const std::string_view piece = std::string_view(pieces.text).substr(begin, end - begin);
    for (const Part& part : Join(Parts(split, piece, matcher), split.behavior)) {
      const size_t length = part.end - part.begin;
      if (length == 0) continue;
      if (split.behavior == Behavior::kRemoved) cut.text.append(piece.substr(part.begin, length));
      kept += length;
      cut.ends.push_back(kept);
    }
    begin = end;
  }
  if (split.behavior != Behavior::kRemoved) cut.text = std::move(pieces.text);
  return cut;
}

Pieces PreTokenizer::Apply(const PrefixSpace&, Pieces pieces, Matcher&) {
  Pieces prefixed;
  prefixed.text.reserve(pieces.text.size() + pieces.ends.size());
  size_t begin = 0;
  for (const size_t end : pieces.ends) {
    if (pieces.text[begin] != ' ') prefixed.text += ' ';
    prefixed.text.append(pieces.text, begin, end - begin);
    prefixed.ends.push_back(prefixed.text.size());
    begin = end;
  }
  return prefixed;
}

}  // namespace divisi
