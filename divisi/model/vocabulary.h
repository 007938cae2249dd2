// The texts of a tokenizer's ids, both ways.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "divisi/core/ids.h"
#include "divisi/core/result.h"

namespace divisi {

// Immutable once filled. Texts lie in one arena and ids are found by open addressing: a vocabulary
// has 150 thousand entries or more, and loading it is a large part of the time to the first token.
class Vocabulary {
 public:
  // Larger ids are refused: a file of few bytes must not cause an allocation of many. The largest
  // published vocabularies have about 2^18 entries.
  static constexpr TokenId kMaxId = (1 << 22) - 1;

  // A model's entry, written in the byte-level alphabet. One that has a character outside it stands
  // for its own UTF-8 bytes, as in the Hugging Face decoder.
  // Errors: kInvalidArgument for an id outside 0 .. kMaxId, or an id or text used already.
  Result<void> AddEntry(std::string_view text, int64_t id);
  // An added token, which stands for its own UTF-8 bytes. One that the model has under the same id
  // is marked and keeps that entry's text.
  Result<void> AddToken(std::string_view text, int64_t id, bool special);
  void Reserve(size_t entries);

  std::optional<TokenId> Find(std::string_view text) const;
  // The same among the model's entries alone.
  std::optional<TokenId> FindEntry(std::string_view text) const;
  // Empty and false for an id that is not in use.
  std::string_view Text(TokenId id) const { return View(id, &Entry::text); }
  std::string_view Bytes(TokenId id) const { return View(id, &Entry::bytes); }
  bool IsSpecial(TokenId id) const { return Has(id) && entries_[id].special; }
  bool Has(TokenId id) const { return id >= 0 && id < end_id() && entries_[id].used; }
  TokenId end_id() const { return static_cast<TokenId>(entries_.size()); }

 private:
  struct Range {
    uint32_t offset = 0;
    uint32_t length = 0;
  };
  struct Entry {
    Range text;
    Range bytes;
    bool used = false;
    bool model = false;  // Not an added token alone.
    bool special = false;
  };

  struct Slot {
    uint32_t hash = 0;  // Tells most other texts apart without a look at the arena.
    TokenId id = -1;    // -1 is free.
  };

  Result<void> Insert(std::string_view text, std::string_view bytes, int64_t id);
  Range Store(std::string_view text);
  std::string_view View(TokenId id, Range Entry::*range) const;
  size_t SlotOf(std::string_view text, uint32_t hash) const;
  void Rehash(size_t size);

  std::string arena_;           // At most the file's size twice, which kMaxTokenizerBytes bounds.
  std::vector<Entry> entries_;  // By id.
  std::vector<Slot> slots_;     // A power of two, at most half full.
  size_t count_ = 0;
};

}  // namespace divisi
