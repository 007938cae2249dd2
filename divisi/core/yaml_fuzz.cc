// ParseYaml on any text: it refuses it, naming a line, or gives a tree within its bounds.
#include "divisi/core/yaml.h"

namespace divisi {
namespace {

size_t CheckTree(const YamlNode& node, int depth) {
  CHECK(depth <= kMaxYamlDepth + 1);
  CHECK(node.line >= 0 && (node.children.empty() || node.is_list() || node.is_map()));
  CHECK(node.text.empty() || node.is_scalar());
  size_t bytes = node.text.size() + node.key.size();
  for (const YamlNode& child : node.children) bytes += 64 + CheckTree(child, depth + 1);
  return bytes;
}

}  // namespace
}  // namespace divisi

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto node = divisi::ParseYaml({reinterpret_cast<const char*>(data), size}, "f.yaml");
  if (node) {
    CHECK(divisi::CheckTree(*node, 1) <= divisi::kMaxYamlExpandedBytes);
    divisi::YamlToJson(*node);
  } else {
    CHECK(node.error().message.starts_with("f.yaml:") && node.error().message.size() < 1000);
  }
  return 0;
}
