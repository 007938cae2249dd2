#include "divisi/core/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "divisi/core/format.h"
#include "divisi/core/utf8.h"

namespace divisi {
namespace {

constexpr size_t kMostShown = 60;

// Text of a file, fit for a message: short, on one line.
std::string Shown(std::string_view text) {
  const std::string quoted = Json(text.substr(0, kMostShown)).Dump();
  return Format("'{}{}'", quoted.substr(1, quoted.size() - 2),
                text.size() > kMostShown ? "..." : "");
}

// Leaves yaml-cpp from inside its events; caught in ParseYaml.
struct Refusal {
  int line;
  std::string what;
};

// Builds the tree from the parser's events. Open containers are on a stack; what is finished goes
// into the one above.
class TreeBuilder : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Finish(NodeAt(mark, YamlNode::Kind::kNull), anchor);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    RefuseTag(mark, tag);
    YamlNode node = NodeAt(mark, YamlNode::Kind::kScalar);
    node.quoted = tag == "!";  // yaml-cpp's mark for a scalar that isn't plain.
    node.text = value;
    Finish(std::move(node), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchored_.find(anchor);
    // yaml-cpp knows the name, so this is inside the very thing that it names.
    if (found == anchored_.end()) throw Refusal{mark.line + 1, "an alias refers to itself"};
    if (found->second.depth + open_.size() > kMaxYamlDepth) RefuseDepth(mark.line + 1);
    Spend(found->second.cost, mark.line + 1);
    open_.back().depth = std::max(open_.back().depth, found->second.depth + 1);
    AddToParent(found->second.node, found->second.cost, mark.line + 1);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    RefuseTag(mark, tag);
    Open(NodeAt(mark, YamlNode::Kind::kList), anchor);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    RefuseTag(mark, tag);
    Open(NodeAt(mark, YamlNode::Kind::kMap), anchor);
  }
  void OnMapEnd() override { Close(); }

  YamlNode Take() && { return std::move(root_); }

 private:
  struct Container {
    YamlNode node;
    YAML::anchor_t anchor = YAML::NullAnchor;
    size_t cost = 0;
    size_t depth = 1;            // Levels below and with this one.
    std::set<std::string> keys;  // Of a map.
    bool has_key = false;        // A key that waits for its value.
    std::string key;
    int key_line = 0;
  };
  struct Anchored {
    YamlNode node;
    size_t cost;
    size_t depth;
  };

  static YamlNode NodeAt(const YAML::Mark& mark, YamlNode::Kind kind) {
    YamlNode node;
    node.kind = kind;
    node.line = mark.line + 1;
    node.column = mark.column + 1;
    return node;
  }
  static void RefuseTag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    throw Refusal{mark.line + 1, Format("the tag {} is not supported; leave it out", Shown(tag))};
  }
  [[noreturn]] static void RefuseDepth(int line) {
    throw Refusal{line, Format("nests deeper than {} levels", kMaxYamlDepth)};
  }
  void Spend(size_t cost, int line) {
    spent_ += cost;
    if (spent_ <= kMaxYamlExpandedBytes) return;
    throw Refusal{line, Format("with its aliases expanded, the document is beyond {} MiB",
                               kMaxYamlExpandedBytes >> 20)};
  }

  void Open(YamlNode node, YAML::anchor_t anchor) {
    if (!open_.empty()) RefuseAsKey(node.line);
    if (open_.size() >= kMaxYamlDepth) RefuseDepth(node.line);
    Container container;
    container.node = std::move(node);
    container.anchor = anchor;
    open_.push_back(std::move(container));
  }
  void Close() {
    Container done = std::move(open_.back());
    open_.pop_back();
    done.cost += kNodeCost;
    Spend(kNodeCost, done.node.line);
    if (!open_.empty()) open_.back().depth = std::max(open_.back().depth, done.depth + 1);
    Remember(done.anchor, {done.node, done.cost, done.depth});
    const int line = done.node.line;
    AddToParent(std::move(done.node), done.cost, line);
  }
  void Finish(YamlNode scalar, YAML::anchor_t anchor) {
    const size_t cost = kNodeCost + scalar.text.size();
    const int line = scalar.line;
    Spend(cost, line);
    Remember(anchor, {scalar, cost, 0});
    AddToParent(std::move(scalar), cost, line);
  }
  void Remember(YAML::anchor_t anchor, Anchored what) {
    if (anchor == YAML::NullAnchor) return;
    Spend(what.cost, what.node.line);  // It is a copy, too.
    anchored_.insert_or_assign(anchor, std::move(what));
  }

  // A list or map cannot stand where a key is due.
  void RefuseAsKey(int line) const {
    const Container& parent = open_.back();
    if (!parent.node.is_map() || parent.has_key) return;
    throw Refusal{line, "a key must be a text, not a list or a map"};
  }
  void AddToParent(YamlNode node, size_t cost, int line) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Container& parent = open_.back();
    parent.cost += cost;
    if (parent.node.is_map() && !parent.has_key) {
      if (!node.is_scalar()) throw Refusal{line, "a key must be a text"};
      if (!parent.keys.insert(node.text).second) {
        throw Refusal{line, Format("the key {} is given twice", Shown(node.text))};
      }
      parent.has_key = true;
      parent.key = std::move(node.text);
      parent.key_line = line;
      return;
    }
    if (parent.node.is_map()) {
      node.key = std::move(parent.key);
      node.key_line = parent.key_line;
      parent.has_key = false;
    }
    parent.node.children.push_back(std::move(node));
  }

  static constexpr size_t kNodeCost = 64;
  YamlNode root_;
  std::vector<Container> open_;
  std::map<YAML::anchor_t, Anchored> anchored_;
  size_t spent_ = 0;
};

Error At(std::string_view file, int line, std::string_view what) {
  return {Code::kInvalidArgument, Format("{}:{}: {}", file, line, what)};
}

int LineOf(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, offset);
  return 1 + static_cast<int>(std::count(before.begin(), before.end(), '\n'));
}

// What yaml-cpp would take for another encoding, or pass on into messages.
Result<void> CheckCharacters(std::string_view text, std::string_view file) {
  if (text.size() > kMaxYamlBytes) {
    return At(file, 1, Format("the file is larger than {} MiB", kMaxYamlBytes >> 20));
  }
  if (const size_t bad = FindBadUtf8(text); bad != std::string_view::npos) {
    return At(file, LineOf(text, bad), "not UTF-8; save the file as UTF-8");
  }
  const auto control = std::ranges::find_if(text, [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\r' && c != '\t') ||
           c == 0x7F;
  });
  if (control == text.end()) return {};
  return At(file, LineOf(text, static_cast<size_t>(control - text.begin())),
            "a control character; only tabs and line ends may stand in YAML");
}

// `number` where the whole text is one; inf and nan are words in YAML.
template <typename Number>
bool ReadsAs(std::string_view text, Number& number) {
  if (text.starts_with('+')) text.remove_prefix(1);
  if (text.find_first_not_of("0123456789+-.eE") != std::string_view::npos) return false;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  return status == std::errc() && end == text.data() + text.size();
}

Json ScalarToJson(const YamlNode& node) {
  if (node.quoted) return node.text;
  for (const char* name : {"true", "True", "TRUE"}) {
    if (node.text == name) return true;
  }
  for (const char* name : {"false", "False", "FALSE"}) {
    if (node.text == name) return false;
  }
  int64_t whole = 0;
  if (ReadsAs(node.text, whole)) return whole;
  double number = 0;
  if (ReadsAs(node.text, number)) return number;
  return node.text;
}

}  // namespace

const YamlNode* YamlNode::Find(std::string_view name) const {
  if (!is_map()) return nullptr;
  const auto found =
      std::ranges::find_if(children, [&](const YamlNode& child) { return child.key == name; });
  return found == children.end() ? nullptr : &*found;
}

std::string YamlNode::Described() const {
  switch (kind) {
    case Kind::kNull:
      return "nothing";
    case Kind::kScalar:
      return Shown(text);
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      return "a map";
  }
  CHECK(false, "no kind {}", static_cast<int>(kind));
}

Result<YamlNode> ParseYaml(std::string_view text, std::string_view file) {
  RETURN_IF_ERROR(CheckCharacters(text, file));
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    TreeBuilder builder;
    if (!parser.HandleNextDocument(builder)) return YamlNode();
    YamlNode root = std::move(builder).Take();
    TreeBuilder second;
    if (parser.HandleNextDocument(second)) {
      return At(file, std::move(second).Take().line, "a second document begins; a file holds one");
    }
    return root;
  } catch (const Refusal& refusal) {
    return At(file, refusal.line, refusal.what);
  } catch (const YAML::Exception& error) {
    return At(file, std::max(error.mark.line, 0) + 1, Format("not valid YAML: {}", error.msg));
  } catch (const std::exception& error) {
    return At(file, 1, Format("cannot be read as YAML: {}", error.what()));
  }
}

Json YamlToJson(const YamlNode& node) {
  if (node.is_null()) return {};
  if (node.is_scalar()) return ScalarToJson(node);
  Json json = node.is_list() ? Json::MakeArray() : Json::MakeObject();
  for (const YamlNode& child : node.children) {
    if (node.is_list()) {
      json.Append(YamlToJson(child));
    } else {
      json.as_object().emplace_back(child.key, YamlToJson(child));
    }
  }
  return json;
}

}  // namespace divisi
