// The identity of a KV page: a name made from everything that its content depends on, so that two
// pages with one name hold the same bytes wherever and whenever they were computed.
//
// A key is a chain: the root hashes what all pages of a key space share, each page's key hashes its
// parent's key and its own tokens. A page is thus named by all tokens up to its end, and the
// longest shared prefix of two sequences is where their chains part. Only pages full of tokens have
// keys.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "divisi/core/ids.h"

namespace divisi {

struct BlockKey {
  std::array<uint8_t, 32> bytes{};

  friend bool operator==(const BlockKey&, const BlockKey&) = default;
  friend auto operator<=>(const BlockKey&, const BlockKey&) = default;
  std::string Hex() const;
};

// A key is a cryptographic hash already: its first bytes serve as they are.
struct BlockKeyHash {
  size_t operator()(const BlockKey& key) const {
    size_t hash;
    std::memcpy(&hash, key.bytes.data(), sizeof hash);
    return hash;
  }
};

// What all pages of a chain share. Pages of different key spaces never meet; an empty field is a
// value like any other.
struct KeySpace {
  std::vector<uint8_t> model_fingerprint;  // Weights and what changes their arithmetic.
  std::string adapter;                     // Of the request; empty: the model as it is.
  std::string page_format;                 // Element type, layout and tokens of a page.
  std::string tenant_salt;                 // Keeps one tenant's prefixes from another's timing.
};

// The parent of a sequence's first page.
//   SHA-256 over the fields tag "divisi.key-space.1", model_fingerprint, adapter, page_format,
//   tenant_salt; each field is its length (u32, little-endian) and its bytes.
BlockKey RootKey(const KeySpace& space);

// The key of the page that holds `tokens` and follows `parent`.
//   SHA-256 over the fields tag "divisi.page.1", parent, tokens (each u32, little-endian).
// Requires: tokens.size() == kBlockTokens.
BlockKey PageKey(const BlockKey& parent, std::span<const TokenId> tokens);

// Appends to `keys`, which holds the keys of a prefix of `tokens`' pages, those of the full pages
// that follow, up to `pages` in all.
void ExtendKeys(const BlockKey& root, std::span<const TokenId> tokens, size_t pages,
                std::vector<BlockKey>& keys);

}  // namespace divisi
