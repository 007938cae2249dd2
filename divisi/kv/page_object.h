// The page object: one KV page with all of its layers and what it takes to know and trust it again.
// A file of the disk tier, an object of the pool and a value in Redis are the same bytes, so that a
// page moves between them unread. An object never changes; another content has another key.
//
// Version 1, little-endian; `head` is the first 4096 bytes, which leaves the payload aligned for
// direct reading:
//      0  "DIVISIKV"
//      8  u16 version, 1            10  u16 bytes of the head, 4096
//     12  u8 StateKind              13  u8 ElementType
//     14  u16 layers                16  u32 tokens
//     20  u32 bytes of a layer      24  u64 position of the first token
//     32  key[32]                   64  parent key[32]
//     96  root key[32]             128  u64 bytes of the payload, layers x bytes of a layer
//    136  u64 XXH3-64 of the head with this field 0
//    144  layers x u64: XXH3-64 of each layer's bytes, then zeros
//   4064  model key[32]
//   4096  the layers, in order
// Any change raises the version; objects of another version are skipped, never guessed at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "divisi/core/result.h"
#include "divisi/kv/block_key.h"

namespace divisi {

inline constexpr int kPageObjectVersion = 1;
inline constexpr size_t kPageHeadBytes = 4096;
inline constexpr int kMaxPageLayers = 490;  // Whose sums fit into the head.
// Bounds what a stranger's head makes a reader reserve; a page of a 100-layer model with 128 KiB a
// token and layer is 200 MiB.
inline constexpr int64_t kMaxPagePayload = int64_t{1} << 30;

// What the bytes are. A state of another kind is never read as this one.
enum class StateKind : uint8_t { kPage = 1, kImage = 2, kRecurrent = 3 };
enum class ElementType : uint8_t { kBf16 = 1, kF32 = 2 };

// What all pages of one model have in common.
struct PageShape {
  StateKind kind = StateKind::kPage;
  ElementType type = ElementType::kBf16;
  int layers = 0;
  int tokens = kBlockTokens;
  int64_t layer_bytes = 0;

  int64_t PayloadBytes() const { return layers * layer_bytes; }
  friend bool operator==(const PageShape&, const PageShape&) = default;
};

struct PageHeader {
  PageShape shape;
  int64_t position = 0;  // Of the first token, in its sequence.
  BlockKey key;
  BlockKey parent;
  BlockKey root;   // RootKey of the page's key space: the start of the chain of parents.
  BlockKey model;  // RootKey of the same space without adapter and salt.

  friend bool operator==(const PageHeader&, const PageHeader&) = default;
};

struct PageHead {
  PageHeader header;
  std::vector<uint64_t> sums;  // [layers]
};

// XXH3-64: of what the machine damages. Identity is the key's matter.
uint64_t PageSum(std::span<const std::byte> bytes);
// What a head's field at 136 has to be. Requires: head.size() == kPageHeadBytes.
uint64_t PageHeadSum(std::span<const std::byte> head);
// Copies and gives the sum of the bytes copied; they are read from memory once.
// Requires: equal sizes, no overlap.
uint64_t CopyWithSum(std::span<std::byte> to, std::span<const std::byte> from);

// Whether a head can say it: layers within [1, kMaxPageLayers], a payload within kMaxPagePayload,
// position and tokens not negative.  Errors: kInvalidArgument, naming the field.
Result<void> CheckEncodable(const PageHeader& header);

// kPageHeadBytes. Requires: CheckEncodable(head.header), a sum for each layer.
std::vector<std::byte> EncodePageHead(const PageHead& head);
// Requires: CheckEncodable(header), payload.size() == header.shape.PayloadBytes().
std::vector<std::byte> EncodePageObject(const PageHeader& header,
                                        std::span<const std::byte> payload);

// Reads the head at the start of `bytes`, which nobody has looked at yet.
// Errors: kInvalidArgument where it is no page object at all, kUnimplemented where it is one of
// another version, kDataLoss where it contradicts itself; each names the field.
Result<PageHead> ReadPageHead(std::span<const std::byte> bytes);

// Layers [first, first + bytes.size() / layer_bytes) against their sums.
// Errors: kDataLoss with the layer. Requires: whole layers that the page has.
Result<void> CheckPageLayers(const PageHead& head, int first, std::span<const std::byte> bytes);

// The whole object: length, head and each layer.  Errors: those of ReadPageHead and
// CheckPageLayers; kDataLoss for a length that is not the one the head says.
Result<PageHead> CheckPageObject(std::span<const std::byte> bytes);

// Whether what was found is what was asked for: key, model, root, shape and position. The parent is
// part of the key.  Errors: kDataLoss, naming the first field that differs, and both values.
Result<void> CheckIsAsked(const PageHeader& found, const PageHeader& asked);

}  // namespace divisi
