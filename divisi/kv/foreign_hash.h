// The names that other engines give to blocks of KV, so that a gateway can look up what a worker of
// vLLM, SGLang or Dynamo holds of a prompt by that worker's own events.
//
// Each is a chain: a block's hash covers its tokens and all before it. Only full blocks have one.
// Sources: vLLM v1/core/kv_cache_utils.py (sha256_cbor), SGLang mem_cache/hicache_storage.py,
// Dynamo lib/kv-router (compute_block_hash_for_seq).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "divisi/core/ids.h"
#include "divisi/kv/event_hash.h"
#include "divisi/kv/sha256.h"

namespace divisi {

// --- vLLM, --prefix-caching-hash-algo sha256_cbor ---

// An image or the like in the prompt.
struct VllmMedia {
  std::string identifier;
  int64_t first_token = 0;  // Position of its first placeholder in the prompt.
  int64_t tokens = 0;
};
// What a block's hash covers besides tokens. Empty fields are none.
struct VllmContext {
  std::string lora_name;
  std::vector<VllmMedia> media;  // In the order of their first tokens.
  bool media_offsets = true;     // False: vLLM 0.18 and before, where a name stands alone.
  std::string cache_salt;        // In the first block only.
  std::vector<Sha256::Digest> embeddings;  // Of prompt embeddings: one per block, or empty.
};

// The parent of a prompt's first block: SHA-256 of `seed` as CBOR text.
// seed: the worker's PYTHONHASHSEED, or where that is unset kVllmDefaultSeed (vLLM from August
// 2026 on). Earlier versions without PYTHONHASHSEED draw bytes at each start: their hashes can't be
// computed by others, only matched by the tokens that events carry.
inline constexpr std::string_view kVllmDefaultSeed = "vllm-none-hash";
Sha256::Digest VllmRoot(std::string_view seed);

// Digests of the prompt's full blocks.
//   digest = SHA-256 of the CBOR array [parent's digest, [tokens], extras], where extras is null,
//   or of the block: LoRA name, each overlapping media item [identifier, its first token minus the
//   block's], salt, digest of the embeddings.
// Requires: block_tokens > 0, tokens not negative.
std::vector<Sha256::Digest> VllmDigests(const Sha256::Digest& root, const VllmContext& context,
                                        std::span<const TokenId> tokens, int64_t block_tokens);

// --- SGLang ---

// digest = SHA-256 over the parent's digest, if there is one, and each token (u32, little-endian).
// Requires: page_tokens > 0. Tokens of an image are SglangImageToken of its hash.
std::vector<Sha256::Digest> SglangDigests(std::span<const TokenId> tokens, int64_t page_tokens);
// What stands for each token of an image: 1,000,000 + hash mod 2^30.
TokenId SglangImageToken(uint64_t image_hash);

// --- Dynamo, and Mooncake's RFC 1527 ---

inline constexpr uint64_t kDynamoSeed = 1337;
// XXH3-64 over the block's tokens (u32, little-endian) and its media's hashes, sorted (u64).
uint64_t DynamoLocalHash(std::span<const TokenId> block, std::vector<uint64_t> media_hashes = {},
                         uint64_t seed = kDynamoSeed);
// Sequence hashes: the first is the block's local hash, each further one XXH3-64 of the one before
// and its local hash (u64, little-endian).
std::vector<uint64_t> DynamoHashes(std::span<const uint64_t> local_hashes);

// --- The same for all, as a gateway asks ---

enum class HashScheme { kDivisi, kVllm, kSglang, kDynamo };
struct ForeignHashes {
  HashScheme scheme = HashScheme::kVllm;
  int64_t block_tokens = 16;
  std::string seed{kVllmDefaultSeed};  // vLLM.
  bool digest_bytes = false;           // vLLM with VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0.
  BlockKey root;                       // Divisi: of the worker's key space.
  friend bool operator==(const ForeignHashes&, const ForeignHashes&) = default;
};
// The names under which that engine's events speak of the full blocks of a prompt. context: of
// vLLM; others ignore it, so ask none of them about a prompt with images or an adapter.
std::vector<EventHash> ForeignKeys(const ForeignHashes& hashes, const VllmContext& context,
                                   std::span<const TokenId> tokens);
// A digest as a number: vLLM sends its last 8 bytes, unsigned, SGLang its first, signed; both
// big-endian.
EventHash VllmEventHash(const Sha256::Digest& digest);
EventHash SglangEventHash(const Sha256::Digest& digest);

}  // namespace divisi
