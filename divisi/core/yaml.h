// A YAML document as a tree of our own, with the line of everything, so that what is wrong in a
// file can be said by line. Parsing is yaml-cpp's, which yaml.cc alone includes. Typed values are
// read from the tree by core/yaml_fields.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "divisi/core/json.h"
#include "divisi/core/result.h"

namespace divisi {

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  std::string text;     // Of a scalar, quotes and escapes resolved.
  bool quoted = false;  // A quoted scalar is text, whatever it looks like.
  int line = 0;         // From 1. What an alias stands for has the line of its anchor.
  int column = 0;       // From 1.

  // Items of a list; values of a map in the order of the file, each with its key, all different.
  std::vector<YamlNode> children;
  std::string key;
  int key_line = 0;

  bool is_null() const { return kind == Kind::kNull; }
  bool is_scalar() const { return kind == Kind::kScalar; }
  bool is_list() const { return kind == Kind::kList; }
  bool is_map() const { return kind == Kind::kMap; }

  // The value of a map's key; nullptr when absent or when this is no map. Linear.
  const YamlNode* Find(std::string_view key) const;
  // "nothing", "'abc'" (cut where long), "a list", "a map": for messages.
  std::string Described() const;
};

// Bounds of a document. A scenario or catalogue has some hundred nodes on ten levels.
inline constexpr size_t kMaxYamlBytes = size_t{4} << 20;
inline constexpr int kMaxYamlDepth = 64;
// Of the tree with its aliases expanded, each node as its text and 64 bytes: a short file can stand
// for an endless tree by aliases of aliases.
inline constexpr size_t kMaxYamlExpandedBytes = size_t{32} << 20;

// Parses one document; an empty one is null. `file` is for messages.
// Errors: kInvalidArgument, "file:line: what is wrong", for text that is not YAML in UTF-8, a
// second document, a key that is repeated or no text, a tag, and what is beyond the bounds.
Result<YamlNode> ParseYaml(std::string_view text, std::string_view file);

// The tree as JSON: plain scalars are null, true, false or numbers where they look so (the core
// schema of YAML 1.2, decimal), else text.
Json YamlToJson(const YamlNode& node);

}  // namespace divisi
