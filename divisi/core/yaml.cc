#include "divisi/core/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "divisi/core/format.h"
#include "divisi/core/utf8.h"

namespace divisi {
namespace {

constexpr size_t kMostShown = 60;

// yaml-cpp's messages quote names of any length.
std::string Cut(const std::string& message) {
  constexpr size_t kMost = 120;
  return message.size() > kMost ? message.substr(0, kMost) + "..." : message;
}

// Text of a file, fit for a message: short, on one line.
std::string Shown(std::string_view text) {
  const std::string quoted = Json(text.substr(0, kMostShown)).Dump();
  return Format("'{}{}'", quoted.substr(1, quoted.size() - 2),
                text.size() > kMostShown ? "..." : "");
}

struct Refusal {
  int line = 0;
  std::string what;
};

// Builds the tree from the parser's events. Open containers are on a stack; what is finished goes
// into the one above. After a refusal nothing more is built; what the parser still reads is bounded
// by the text.
class TreeBuilder : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Finish(NodeAt(mark, YamlNode::Kind::kNull), anchor);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    CheckTag(mark, tag);
    YamlNode node = NodeAt(mark, YamlNode::Kind::kScalar);
    node.quoted = tag == "!";  // yaml-cpp's mark for a scalar that isn't plain.
    node.text = value;
    Finish(std::move(node), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (refusal_) return;
    const int line = mark.line + 1;
    const auto found = anchored_.find(anchor);
    // yaml-cpp knows the name, so this is inside the very thing that it names.
    if (found == anchored_.end()) return Refuse(line, "an alias refers to itself");
    const Anchored& anchored = found->second;
    if (anchored.depth + open_.size() > kMaxYamlDepth) return RefuseDepth(line);
    if (!Spend(anchored.cost, line)) return;
    open_.back().depth = std::max(open_.back().depth, anchored.depth + 1);
    AddToParent(anchored.node, anchored.cost, line);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    CheckTag(mark, tag);
    Open(NodeAt(mark, YamlNode::Kind::kList), anchor);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    CheckTag(mark, tag);
    Open(NodeAt(mark, YamlNode::Kind::kMap), anchor);
  }
  void OnMapEnd() override { Close(); }

  const std::optional<Refusal>& refusal() const { return refusal_; }
  const YamlNode& root() const { return root_; }
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
  void Refuse(int line, std::string what) {
    if (!refusal_) refusal_ = Refusal{line, std::move(what)};
  }
  void RefuseDepth(int line) { Refuse(line, Format("nests deeper than {} levels", kMaxYamlDepth)); }
  void CheckTag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    Refuse(mark.line + 1, Format("the tag {} is not supported; leave it out", Shown(tag)));
  }
  bool Spend(size_t cost, int line) {
    spent_ += cost;
    if (spent_ <= kMaxYamlExpandedBytes) return true;
    Refuse(line, Format("with its aliases expanded, the document is beyond {} MiB",
                        kMaxYamlExpandedBytes >> 20));
    return false;
  }

  void Open(YamlNode node, YAML::anchor_t anchor) {
    if (refusal_) return;
    if (KeyIsDue()) return Refuse(node.line, "a key must be a text, not a list or a map");
    if (open_.size() >= kMaxYamlDepth) return RefuseDepth(node.line);
    Container container;
    container.node = std::move(node);
    container.anchor = anchor;
    open_.push_back(std::move(container));
  }
  void Close() {
    if (refusal_) return;
    Container done = std::move(open_.back());
    open_.pop_back();
    done.cost += kNodeCost;
    if (!open_.empty()) open_.back().depth = std::max(open_.back().depth, done.depth + 1);
    Place(std::move(done.node), done.anchor,
          {.cost = done.cost, .own = kNodeCost, .depth = done.depth});
  }
  void Finish(YamlNode scalar, YAML::anchor_t anchor) {
    if (refusal_) return;
    const size_t cost = kNodeCost + scalar.text.size();
    Place(std::move(scalar), anchor, {.cost = cost, .own = cost, .depth = 0});
  }

  struct Size {
    size_t cost;   // With everything below.
    size_t own;    // Without.
    size_t depth;  // Levels of containers.
  };
  void Place(YamlNode node, YAML::anchor_t anchor, Size size) {
    const int line = node.line;
    if (!Spend(size.own, line)) return;
    if (anchor != YAML::NullAnchor) {
      if (!Spend(size.cost, line)) return;  // What the anchor keeps is a copy.
      anchored_.insert_or_assign(anchor, Anchored{node, size.cost, size.depth});
    }
    AddToParent(std::move(node), size.cost, line);
  }

  bool KeyIsDue() const {
    return !open_.empty() && open_.back().node.is_map() && !open_.back().has_key;
  }
  void AddToParent(YamlNode node, size_t cost, int line) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Container& parent = open_.back();
    parent.cost += cost;
    if (KeyIsDue()) {
      if (!node.is_scalar()) return Refuse(line, "a key must be a text");
      if (!parent.keys.insert(node.text).second) {
        return Refuse(line, Format("the key {} is given twice", Shown(node.text)));
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
  std::optional<Refusal> refusal_;
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
  TreeBuilder builder;
  const auto refused = [&] { return At(file, builder.refusal()->line, builder.refusal()->what); };
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return YamlNode();
    if (builder.refusal()) return refused();
    TreeBuilder second;
    if (parser.HandleNextDocument(second)) {
      return At(file, second.root().line, "a second document begins; a file holds one");
    }
  } catch (const YAML::Exception& error) {
    if (builder.refusal()) return refused();  // The cause, and found earlier.
    return At(file, std::max(error.mark.line, 0) + 1, Format("not valid YAML: {}", Cut(error.msg)));
  } catch (const std::exception& error) {
    return At(file, 1, Format("cannot be read as YAML: {}", error.what()));
  }
  return std::move(builder).Take();
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
