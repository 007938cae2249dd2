#include "divisi/model/jinja_parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "divisi/model/jinja_expression_parser.h"

namespace divisi {
namespace {

using Kind = JinjaToken::Kind;

class Parser {
 public:
  explicit Parser(std::vector<JinjaToken> tokens)
      : tokens_(std::move(tokens)), expressions_(tokens_) {}

  Result<JinjaBlock> Run() {
    ASSIGN_OR_RETURN(auto block, ParseBlock({}));
    if (!tokens_.At(Kind::kEnd)) return tokens_.Fail("a tag that closes nothing");
    return block;
  }

 private:
  // Statements up to a tag whose name is among `ends` (left unread behind its {%), or the end.
  Result<JinjaBlock> ParseBlock(std::initializer_list<std::string_view> ends) {
    if (++nesting_ > JinjaExpr::kMaxDepth) {
      return AtPlace(tokens_.Peek().place, Code::kOutOfRange,
                     Format("blocks nest deeper than {}", JinjaExpr::kMaxDepth));
    }
    JinjaBlock block;
    while (!tokens_.At(Kind::kEnd)) {
      const JinjaPlace place = tokens_.Peek().place;
      if (tokens_.At(Kind::kText)) {
        block.push_back({place, JinjaText{tokens_.Take().text}});
      } else if (tokens_.At(Kind::kVariableBegin)) {
        tokens_.Take();
        ASSIGN_OR_RETURN(auto value, expressions_.ParseTuple(true));
        if (!tokens_.At(Kind::kVariableEnd)) {
          return tokens_.Fail(Format("expected '}}}}', found {}", tokens_.Found()));
        }
        tokens_.Take();
        block.push_back({place, JinjaPrint{std::move(value)}});
      } else {
        tokens_.Take();
        if (std::any_of(ends.begin(), ends.end(), [&](auto end) { return tokens_.AtName(end); })) {
          break;
        }
        ASSIGN_OR_RETURN(auto statement, ParseStatement());
        statement.place = place;
        block.push_back(std::move(statement));
      }
    }
    --nesting_;
    return block;
  }

  Result<JinjaBlock> ParseScope(std::initializer_list<std::string_view> ends) {
    ++scopes_;
    auto block = ParseBlock(ends);
    --scopes_;
    return block;
  }

  Result<void> ExpectBlockEnd() {
    if (!tokens_.At(Kind::kBlockEnd)) {
      return tokens_.Fail(Format("expected '%}}', found {}", tokens_.Found()));
    }
    tokens_.Take();
    return {};
  }

  // The rest of {% name %}.
  Result<void> ExpectTag(std::string_view name) {
    if (!tokens_.TakeName(name)) {
      return tokens_.Fail(Format("expected '{}', found {}", name, tokens_.Found()));
    }
    return ExpectBlockEnd();
  }

  // Behind {%.
  Result<JinjaStatement> ParseStatement() {
    const JinjaToken& token = tokens_.Peek();
    if (token.kind != Kind::kName) {
      return tokens_.Fail(Format("expected the name of a statement, found {}", tokens_.Found()));
    }
    struct Known {
      const char* name;
      Result<JinjaStatement> (Parser::*parse)();
    };
    static constexpr Known kKnown[] = {{"if", &Parser::ParseIf},
                                       {"for", &Parser::ParseFor},
                                       {"set", &Parser::ParseSet},
                                       {"macro", &Parser::ParseMacro},
                                       {"with", &Parser::ParseWith},
                                       {"generation", &Parser::ParseGeneration},
                                       {"filter", &Parser::ParseFilter},
                                       {"break", &Parser::ParseBreak},
                                       {"continue", &Parser::ParseContinue}};
    for (const Known& known : kKnown) {
      if (tokens_.TakeName(known.name)) return (this->*known.parse)();
    }
    static constexpr std::array kUnsupported = {"include", "import",     "from", "extends",
                                                "block",   "autoescape", "call", "do",
                                                "trans",   "print",      "debug"};
    for (const char* name : kUnsupported) {
      if (tokens_.AtName(name)) return tokens_.Unsupported(Format("{{% {} %}}", name));
    }
    return tokens_.Fail(Format("unknown or unexpected statement '{}'", token.text));
  }

  Result<JinjaStatement> ParseIf() {
    JinjaIf node;
    do {
      ASSIGN_OR_RETURN(auto condition, expressions_.ParseTuple(false));
      RETURN_IF_ERROR(ExpectBlockEnd());
      ASSIGN_OR_RETURN(auto body, ParseBlock({"elif", "else", "endif"}));
      node.branches.emplace_back(std::move(condition), std::move(body));
    } while (tokens_.TakeName("elif"));
    if (tokens_.TakeName("else")) {
      RETURN_IF_ERROR(ExpectBlockEnd());
      ASSIGN_OR_RETURN(node.otherwise, ParseBlock({"endif"}));
    }
    RETURN_IF_ERROR(ExpectTag("endif"));
    return JinjaStatement{{}, std::move(node)};
  }

  Result<JinjaStatement> ParseFor() {
    JinjaFor node;
    ASSIGN_OR_RETURN(node.target, ParseTarget(false));
    if (!tokens_.TakeName("in")) {
      return tokens_.Fail(Format("expected 'in', found {}", tokens_.Found()));
    }
    ASSIGN_OR_RETURN(node.items, expressions_.ParseTuple(false));
    if (tokens_.TakeName("if")) {
      ASSIGN_OR_RETURN(node.condition, expressions_.ParseExpression());
    }
    if (tokens_.AtName("recursive")) return tokens_.Unsupported("a recursive loop");
    RETURN_IF_ERROR(ExpectBlockEnd());
    ++loops_;
    const int mentions = expressions_.loop_mentions();
    ASSIGN_OR_RETURN(node.body, ParseScope({"else", "endfor"}));
    node.uses_loop = expressions_.loop_mentions() > mentions;
    --loops_;
    if (tokens_.TakeName("else")) {
      RETURN_IF_ERROR(ExpectBlockEnd());
      ASSIGN_OR_RETURN(node.otherwise, ParseBlock({"endfor"}));
    }
    RETURN_IF_ERROR(ExpectTag("endfor"));
    return JinjaStatement{{}, std::move(node)};
  }

  // allow_attribute: whether name.attribute may be assigned to.
  Result<JinjaTarget> ParseTarget(bool allow_attribute) {
    JinjaTarget tuple;
    tuple.place = tokens_.Peek().place;
    bool comma = false;
    do {
      if (comma && (tokens_.AtName("in") || tokens_.AtOperator("="))) break;
      ASSIGN_OR_RETURN(auto item, ParseTargetItem(allow_attribute));
      tuple.items.push_back(std::move(item));
    } while (tokens_.TakeOperator(",") && (comma = true));
    if (!comma) return std::move(tuple.items.front());
    return tuple;
  }

  Result<JinjaTarget> ParseTargetItem(bool allow_attribute) {
    if (tokens_.TakeOperator("(")) {
      if (++nesting_ > JinjaExpr::kMaxDepth) return tokens_.Fail("targets nest too deep");
      ASSIGN_OR_RETURN(auto inner, ParseTarget(false));
      --nesting_;
      RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
      return inner;
    }
    JinjaTarget target;
    target.place = tokens_.Peek().place;
    ASSIGN_OR_RETURN(target.name, tokens_.ExpectName());
    static constexpr std::string_view kConstants[] = {"true",  "True", "false",
                                                      "False", "none", "None"};
    if (std::find(std::begin(kConstants), std::end(kConstants), target.name) !=
        std::end(kConstants)) {
      return AtPlace(target.place, Code::kInvalidArgument, "an assignment to a constant");
    }
    if (allow_attribute && tokens_.TakeOperator(".")) {
      ASSIGN_OR_RETURN(target.attribute, tokens_.ExpectName());
    }
    return target;
  }

  Result<JinjaStatement> ParseSet() {
    ASSIGN_OR_RETURN(auto target, ParseTarget(true));
    if (tokens_.TakeOperator("=")) {
      ASSIGN_OR_RETURN(auto value, expressions_.ParseTuple(true));
      RETURN_IF_ERROR(ExpectBlockEnd());
      return JinjaStatement{{}, JinjaSet{std::move(target), std::move(value)}};
    }
    JinjaSetBlock node{std::move(target), {}, {}};
    if (tokens_.TakeOperator("|")) {
      ASSIGN_OR_RETURN(node.filters, expressions_.ParseFilters());
    }
    RETURN_IF_ERROR(ExpectBlockEnd());
    ASSIGN_OR_RETURN(node.body, ParseScope({"endset"}));
    RETURN_IF_ERROR(ExpectTag("endset"));
    return JinjaStatement{{}, std::move(node)};
  }

  Result<JinjaStatement> ParseMacro() {
    // There, a macro would see the variables around it; at the top, the template's.
    if (scopes_ > 0) return tokens_.Unsupported("a macro inside a loop, macro or other scope");
    JinjaMacro node;
    ASSIGN_OR_RETURN(node.name, tokens_.ExpectName());
    RETURN_IF_ERROR(tokens_.ExpectOperator("("));
    while (!tokens_.AtOperator(")")) {
      ASSIGN_OR_RETURN(auto parameter, tokens_.ExpectName());
      JinjaExprPtr value;
      if (tokens_.TakeOperator("=")) {
        ASSIGN_OR_RETURN(value, expressions_.ParseExpression());
      } else if (!node.defaults.empty() && node.defaults.back() != nullptr) {
        return tokens_.Fail("a parameter without default behind one with a default");
      }
      node.parameters.push_back(std::move(parameter));
      node.defaults.push_back(std::move(value));
      if (!tokens_.TakeOperator(",")) break;
    }
    RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
    RETURN_IF_ERROR(ExpectBlockEnd());
    const int loops = std::exchange(loops_, 0);
    ASSIGN_OR_RETURN(node.body, ParseScope({"endmacro"}));
    loops_ = loops;
    RETURN_IF_ERROR(ExpectMacroEnd(node.name));
    return JinjaStatement{{}, std::move(node)};
  }

  // Jinja lets the end repeat the macro's name.
  Result<void> ExpectMacroEnd(const std::string& name) {
    if (!tokens_.TakeName("endmacro")) return tokens_.Fail("a macro without its {% endmacro %}");
    tokens_.TakeName(name);
    return ExpectBlockEnd();
  }

  Result<JinjaStatement> ParseWith() {
    JinjaScoped node;
    while (!tokens_.At(Kind::kBlockEnd)) {
      ASSIGN_OR_RETURN(auto target, ParseTargetItem(false));
      RETURN_IF_ERROR(tokens_.ExpectOperator("="));
      ASSIGN_OR_RETURN(auto value, expressions_.ParseExpression());
      node.assignments.emplace_back(std::move(target), std::move(value));
      if (!tokens_.TakeOperator(",")) break;
    }
    RETURN_IF_ERROR(ExpectBlockEnd());
    ASSIGN_OR_RETURN(node.body, ParseScope({"endwith"}));
    RETURN_IF_ERROR(ExpectTag("endwith"));
    return JinjaStatement{{}, std::move(node)};
  }

  // Hugging Face's mark around what the model says; it changes nothing in the text.
  Result<JinjaStatement> ParseGeneration() {
    JinjaScoped node;
    RETURN_IF_ERROR(ExpectBlockEnd());
    const int loops = std::exchange(loops_, 0);
    ASSIGN_OR_RETURN(node.body, ParseScope({"endgeneration"}));
    loops_ = loops;
    RETURN_IF_ERROR(ExpectTag("endgeneration"));
    return JinjaStatement{{}, std::move(node)};
  }

  Result<JinjaStatement> ParseFilter() {
    JinjaFilterBlock node;
    ASSIGN_OR_RETURN(node.filters, expressions_.ParseFilters());
    RETURN_IF_ERROR(ExpectBlockEnd());
    ASSIGN_OR_RETURN(node.body, ParseScope({"endfilter"}));
    RETURN_IF_ERROR(ExpectTag("endfilter"));
    return JinjaStatement{{}, std::move(node)};
  }

  Result<JinjaStatement> ParseBreak() {
    if (loops_ == 0) return tokens_.Fail("{% break %} outside a loop");
    RETURN_IF_ERROR(ExpectBlockEnd());
    return JinjaStatement{{}, JinjaBreak{}};
  }

  Result<JinjaStatement> ParseContinue() {
    if (loops_ == 0) return tokens_.Fail("{% continue %} outside a loop");
    RETURN_IF_ERROR(ExpectBlockEnd());
    return JinjaStatement{{}, JinjaContinue{}};
  }

  JinjaTokenStream tokens_;
  JinjaExpressionParser expressions_;
  int nesting_ = 0;
  int loops_ = 0;   // Loops around the current statement.
  int scopes_ = 0;  // Blocks with variables of their own around it.
};

}  // namespace

Result<JinjaBlock> ParseJinja(std::string_view source) {
  ASSIGN_OR_RETURN(auto tokens, LexJinja(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace divisi
