#include "divisi/kv/foreign_hash.h"

#include <algorithm>

#include "divisi/core/check.h"
#include "divisi/kv/xxh3.h"

namespace divisi {
namespace {

// Canonical CBOR (RFC 8949, 4.2): heads in their shortest form.
class Cbor {
 public:
  enum Major : uint8_t { kUnsigned = 0, kNegative = 1, kBytes = 2, kText = 3, kArray = 4 };

  void Head(Major major, uint64_t value) {
    const auto top = static_cast<uint8_t>(major << 5);
    if (value < 24) return Byte(static_cast<uint8_t>(top | value));
    const int log = value <= 0xff ? 0 : value <= 0xffff ? 1 : value <= 0xffffffff ? 2 : 3;
    Byte(static_cast<uint8_t>(top | (24 + log)));
    for (int shift = (8 << log) - 8; shift >= 0; shift -= 8) Byte(value >> shift & 0xff);
  }
  void Number(int64_t value) {
    if (value >= 0) return Head(kUnsigned, static_cast<uint64_t>(value));
    Head(kNegative, static_cast<uint64_t>(-(value + 1)));
  }
  void Text(std::string_view text) {
    Head(kText, text.size());
    bytes_ += text;
  }
  void Bytes(const Sha256::Digest& digest) {
    Head(kBytes, digest.size());
    bytes_.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  }
  void Null() { Byte(0xf6); }
  void Append(const Cbor& other) { bytes_ += other.bytes_; }
  Sha256::Digest Digest() const {
    Sha256 hash;
    hash.Add(std::as_bytes(std::span(bytes_)));
    return hash.Finish();
  }

 private:
  void Byte(uint64_t byte) { bytes_ += static_cast<char>(byte); }
  std::string bytes_;
};

struct BlockSpan {
  size_t index;
  int64_t first;
  int64_t end;
};

// The extras of one block: an array, or null where there are none.
Cbor VllmExtras(const VllmContext& context, const BlockSpan& block) {
  Cbor items;
  uint64_t count = 0;
  if (!context.lora_name.empty()) {
    items.Text(context.lora_name);
    ++count;
  }
  for (const VllmMedia& item : context.media) {
    if (item.first_token >= block.end || item.first_token + item.tokens <= block.first) continue;
    if (context.media_offsets) items.Head(Cbor::kArray, 2);
    items.Text(item.identifier);
    if (context.media_offsets) items.Number(item.first_token - block.first);
    ++count;
  }
  if (block.index == 0 && !context.cache_salt.empty()) {
    items.Text(context.cache_salt);
    ++count;
  }
  if (block.index < context.embeddings.size()) {
    items.Bytes(context.embeddings[block.index]);
    ++count;
  }
  Cbor extras;
  if (count == 0) {
    extras.Null();
  } else {
    extras.Head(Cbor::kArray, count);
    extras.Append(items);
  }
  return extras;
}

std::vector<uint8_t> LittleEndian(std::span<const TokenId> tokens) {
  std::vector<uint8_t> bytes;
  bytes.reserve(tokens.size() * 4);
  for (const TokenId token : tokens) {
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<uint8_t>(static_cast<uint32_t>(token) >> shift));
    }
  }
  return bytes;
}

void AppendU64(std::vector<uint8_t>& bytes, uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<uint8_t>(value >> shift));
}

uint64_t BigEndian(std::span<const uint8_t> bytes) {
  uint64_t number = 0;
  for (const uint8_t byte : bytes) number = number << 8 | byte;
  return number;
}

// Calls use(tokens of the block) for each full block.
template <typename Use>
void ForEachBlock(std::span<const TokenId> tokens, int64_t block_tokens, Use use) {
  CHECK(block_tokens > 0, "blocks of {} tokens", block_tokens);
  const auto size = static_cast<size_t>(block_tokens);
  for (size_t first = 0; first + size <= tokens.size(); first += size) {
    use(tokens.subspan(first, size));
  }
}

std::vector<EventHash> DivisiKeys(const ForeignHashes& hashes, std::span<const TokenId> tokens) {
  std::vector<BlockKey> keys;
  ExtendKeys(hashes.root, tokens, tokens.size() / kBlockTokens, keys);
  return {keys.begin(), keys.end()};
}

std::vector<EventHash> DynamoKeys(const ForeignHashes& hashes, std::span<const TokenId> tokens) {
  std::vector<uint64_t> locals;
  ForEachBlock(tokens, hashes.block_tokens,
               [&](auto block) { locals.push_back(DynamoLocalHash(block)); });
  const auto sequence = DynamoHashes(locals);
  return {sequence.begin(), sequence.end()};
}

std::vector<EventHash> VllmKeys(const ForeignHashes& hashes, const VllmContext& context,
                                std::span<const TokenId> tokens) {
  std::vector<EventHash> keys;
  const auto root = VllmRoot(hashes.seed);
  for (const auto& digest : VllmDigests(root, context, tokens, hashes.block_tokens)) {
    keys.push_back(hashes.digest_bytes ? EventHash(std::string(digest.begin(), digest.end()))
                                       : VllmEventHash(digest));
  }
  return keys;
}

}  // namespace

Sha256::Digest VllmRoot(std::string_view seed) {
  Cbor text;
  text.Text(seed);
  return text.Digest();
}

std::vector<Sha256::Digest> VllmDigests(const Sha256::Digest& root, const VllmContext& context,
                                        std::span<const TokenId> tokens, int64_t block_tokens) {
  std::vector<Sha256::Digest> digests;
  Sha256::Digest parent = root;
  ForEachBlock(tokens, block_tokens, [&](std::span<const TokenId> block) {
    Cbor input;
    input.Head(Cbor::kArray, 3);
    input.Bytes(parent);
    input.Head(Cbor::kArray, block.size());
    for (const TokenId token : block) input.Number(token);
    const size_t index = digests.size();
    const auto first = static_cast<int64_t>(index) * block_tokens;
    input.Append(VllmExtras(context, {index, first, first + block_tokens}));
    parent = input.Digest();
    digests.push_back(parent);
  });
  return digests;
}

std::vector<Sha256::Digest> SglangDigests(std::span<const TokenId> tokens, int64_t page_tokens) {
  std::vector<Sha256::Digest> digests;
  ForEachBlock(tokens, page_tokens, [&](std::span<const TokenId> page) {
    Sha256 hash;
    if (!digests.empty()) hash.Add(std::as_bytes(std::span(digests.back())));
    const auto bytes = LittleEndian(page);
    hash.Add(std::as_bytes(std::span(bytes)));
    digests.push_back(hash.Finish());
  });
  return digests;
}

TokenId SglangImageToken(uint64_t image_hash) {
  return static_cast<TokenId>(1'000'000 + image_hash % (uint64_t{1} << 30));
}

uint64_t DynamoLocalHash(std::span<const TokenId> block, std::vector<uint64_t> media_hashes,
                         uint64_t seed) {
  std::vector<uint8_t> bytes = LittleEndian(block);
  std::ranges::sort(media_hashes);
  for (const uint64_t hash : media_hashes) AppendU64(bytes, hash);
  return Xxh3(std::as_bytes(std::span(bytes)), seed);
}

std::vector<uint64_t> DynamoHashes(std::span<const uint64_t> local_hashes) {
  std::vector<uint64_t> sequence;
  for (const uint64_t local : local_hashes) {
    if (sequence.empty()) {
      sequence.push_back(local);
      continue;
    }
    std::vector<uint8_t> bytes;
    AppendU64(bytes, sequence.back());
    AppendU64(bytes, local);
    sequence.push_back(Xxh3(std::as_bytes(std::span(bytes)), kDynamoSeed));
  }
  return sequence;
}

EventHash VllmEventHash(const Sha256::Digest& digest) {
  return EventHash(BigEndian(std::span(digest).last<8>()));
}

EventHash SglangEventHash(const Sha256::Digest& digest) {
  return EventHash(static_cast<int64_t>(BigEndian(std::span(digest).first<8>())));
}

std::vector<EventHash> ForeignKeys(const ForeignHashes& hashes, const VllmContext& context,
                                   std::span<const TokenId> tokens) {
  switch (hashes.scheme) {
    case HashScheme::kDivisi:
      return DivisiKeys(hashes, tokens);
    case HashScheme::kVllm:
      return VllmKeys(hashes, context, tokens);
    case HashScheme::kSglang: {
      std::vector<EventHash> keys;
      for (const auto& digest : SglangDigests(tokens, hashes.block_tokens)) {
        keys.push_back(SglangEventHash(digest));
      }
      return keys;
    }
    case HashScheme::kDynamo:
      return DynamoKeys(hashes, tokens);
  }
  return {};
}

}  // namespace divisi
