#include "divisi/plan/scenario_value.h"

#include <string>
#include <utility>

#include "divisi/core/format.h"

namespace divisi {
namespace {

// The child that a part of a path names, made where a map lacks it.
Result<YamlNode*> Step(YamlNode& node, std::string_view part) {
  if (part.empty()) return Error{Code::kInvalidArgument, "a part of the path is empty"};
  if (node.is_list()) {
    const bool number = part.find_first_not_of("0123456789") == std::string_view::npos;
    const size_t index = number && part.size() < 6 ? std::stoul(std::string(part)) : SIZE_MAX;
    if (index < node.children.size()) return &node.children[index];
    return Error{Code::kInvalidArgument,
                 Format("the list has items 0 to {}, not '{}'",
                        static_cast<int64_t>(node.children.size()) - 1, part)};
  }
  if (!node.is_map()) {
    node.kind = YamlNode::Kind::kMap;
    node.children.clear();
  }
  for (YamlNode& child : node.children) {
    if (child.key == part) return &child;
  }
  YamlNode& added = node.children.emplace_back();
  added.key = part;
  added.line = added.key_line = node.line;
  return &added;
}

// Messages about a value that was set name the line whose value it takes.
void PlaceAt(YamlNode& node, int line) {
  node.line = node.key_line = line;
  for (YamlNode& child : node.children) PlaceAt(child, line);
}

}  // namespace

Result<void> SetScenarioValue(YamlNode& tree, std::string_view assignment) {
  const auto context = [&](const Error& error) {
    return WithContext(error, Format("--set {}", assignment));
  };
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return context(
        {Code::kInvalidArgument, "expected KEY=VALUE, as in workload.output_tokens=4097"});
  }
  auto value = ParseYaml(assignment.substr(equals + 1), "value");
  if (!value) return context(value.error());
  YamlNode* node = &tree;
  for (std::string_view path = assignment.substr(0, equals);;) {
    const size_t dot = path.find('.');
    const auto next = Step(*node, path.substr(0, dot));
    if (!next) return context(next.error());
    node = *next;
    if (dot == std::string_view::npos) break;
    path.remove_prefix(dot + 1);
  }
  value->key = node->key;
  PlaceAt(*value, node->line);
  value->key_line = node->key_line;
  *node = std::move(*value);
  return {};
}

}  // namespace divisi
