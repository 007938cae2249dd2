// A cursor over a template's tokens, for the parser's parts.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "divisi/model/jinja_lexer.h"

namespace divisi {

class JinjaTokenStream {
 public:
  // Requires: the last token, and only it, is kEnd.
  explicit JinjaTokenStream(std::vector<JinjaToken> tokens) : tokens_(std::move(tokens)) {}

  const JinjaToken& Peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  JinjaToken Take() {
    const JinjaToken& token = Peek();
    if (token.kind != JinjaToken::Kind::kEnd) ++at_;
    return token;
  }
  bool At(JinjaToken::Kind kind) const { return Peek().kind == kind; }
  bool AtOperator(std::string_view text) const {
    return At(JinjaToken::Kind::kOperator) && Peek().text == text;
  }
  bool AtName(std::string_view text) const {
    return At(JinjaToken::Kind::kName) && Peek().text == text;
  }
  // Takes the token if it is that one.
  bool TakeOperator(std::string_view text) { return AtOperator(text) && (++at_, true); }
  bool TakeName(std::string_view text) { return AtName(text) && (++at_, true); }

  Error Fail(std::string_view message) const {
    return AtPlace(Peek().place, Code::kInvalidArgument, message);
  }
  Error Unsupported(std::string_view construct) const {
    return AtPlace(Peek().place, Code::kUnimplemented,
                   Format("{} is outside the supported part of Jinja", construct));
  }
  Result<void> ExpectOperator(std::string_view text) {
    if (TakeOperator(text)) return {};
    return Fail(Format("expected '{}', found {}", text, Found()));
  }
  Result<std::string> ExpectName() {
    if (!At(JinjaToken::Kind::kName)) return Fail(Format("expected a name, found {}", Found()));
    return Take().text;
  }
  // The current token in words.
  std::string Found() const {
    switch (Peek().kind) {
      case JinjaToken::Kind::kBlockEnd:
        return "the end of the block tag";
      case JinjaToken::Kind::kVariableEnd:
        return "the end of the expression";
      case JinjaToken::Kind::kEnd:
        return "the end of the template";
      case JinjaToken::Kind::kString:
        return "a string";
      default:
        return "'" + Peek().text + "'";
    }
  }

 private:
  std::vector<JinjaToken> tokens_;
  size_t at_ = 0;
};

}  // namespace divisi
