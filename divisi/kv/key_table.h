// A hash table from page keys to small values that never grows: 1 byte of tags and one record per
// place, in buckets of 16. A key may lie in either of two buckets: in the first, so that its tags
// are all that most searches read, or in the second when that was full; when both are, one of their
// keys goes to its other bucket. So it takes all of its keys at 85 % of its places; deletion leaves
// no trace, and an operation looks at a bounded number of tags, whatever the keys.
//
// The whole key decides; tags and buckets come from a hash of all its bytes.
// Source: Pagh and Rodler, "Cuckoo Hashing", 2001; tags, Abseil's Swiss tables.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "divisi/core/check.h"
#include "divisi/core/huge_memory.h"
#include "divisi/kv/block_key.h"

namespace divisi {

template <typename Value>
class KeyTable {
 public:
  using Index = uint32_t;
  static constexpr Index kNone = UINT32_MAX;
  static constexpr double kMostFull = 0.85;

  struct Record {
    BlockKey key;
    Value value;
  };

  // Where a key may lie.
  struct Place {
    uint32_t buckets[2];
    uint8_t tag;
  };

  // For `most` keys. seed: changes which keys collide; nothing else.
  // Errors: kResourceExhausted, naming `what`.   Requires: 0 < most < 2^31.
  static Result<KeyTable> Create(int64_t most, uint64_t seed, const char* what) {
    CHECK(most > 0 && most < (int64_t{1} << 31), "a table for {} keys", most);
    KeyTable table;
    table.most_ = most;
    table.seed_ = seed;
    table.buckets_ = static_cast<uint32_t>(static_cast<double>(most) / kMostFull / kBucket) + 1;
    const int64_t places = table.places();
    auto tags = HugeMemory::Reserve(Bytes(places), what);
    if (!tags) return tags.error();
    auto records = HugeMemory::Reserve(Bytes(places * static_cast<int64_t>(sizeof(Record))), what);
    if (!records) return records.error();
    table.tags_ = *std::move(tags);
    table.records_ = *std::move(records);
    return table;
  }

  Place PlaceOf(const BlockKey& key) const {
    uint64_t words[4];
    std::memcpy(words, key.bytes.data(), sizeof words);
    const uint64_t low = Fold(words[0] ^ 0xa0761d6478bd642f ^ seed_, words[1] ^ 0xe7037ed1a0b428db);
    const uint64_t high = Fold(words[2] ^ 0x8ebc6af09c88c6e3, words[3] ^ 0x589965cc75374cc3 ^ low);
    const uint64_t first = Fold(low ^ 0x1d8e4e27c47d124f, high ^ 0xeb44accab455d165);
    const uint64_t second = first * 0x9e3779b97f4a7c15;
    const auto tag = static_cast<uint8_t>(first);
    return {{Scaled(first), Scaled(second)}, tag == 0 ? uint8_t{1} : tag};
  }

  // Where `count` keys may lie, and a record of each that may be its own (kNone: none is), whose
  // memory is on its way: one step for all keys after the other, so that their misses overlap.
  // key_at(i): the i-th key.
  template <typename KeyAt>
  void Approach(size_t count, KeyAt key_at, Place* places, Index* candidates) const {
    for (size_t i = 0; i < count; ++i) {
      places[i] = PlaceOf(key_at(i));
      __builtin_prefetch(TagsOf(places[i].buckets[0]));
    }
    for (size_t i = 0; i < count; ++i) {
      candidates[i] = Candidate(places[i], 0);
      if (candidates[i] == kNone)
        __builtin_prefetch(TagsOf(places[i].buckets[1]));
      else
        PrefetchRecord(candidates[i]);
    }
    for (size_t i = 0; i < count; ++i) {
      if (candidates[i] != kNone) continue;
      candidates[i] = Candidate(places[i], 1);
      if (candidates[i] != kNone) PrefetchRecord(candidates[i]);
    }
  }

  Index Find(const Place& place, const BlockKey& key) const {
    for (uint64_t found = Tagged(place, place.tag); found != 0; found &= found - 1) {
      const Index index = IndexOf(place, found);
      if (IsAt(index, key)) return index;
    }
    return kNone;
  }
  // Whether `key` lies there. Requires: index is an occupied place.
  bool IsAt(Index index, const BlockKey& key) const {
    uint64_t a[4], b[4];
    std::memcpy(a, RecordAt(index).key.bytes.data(), sizeof a);
    std::memcpy(b, key.bytes.data(), sizeof b);
    return ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3])) == 0;
  }

  Index Find(const BlockKey& key) const { return Find(PlaceOf(key), key); }

  // A record with an empty value; kNone when the table is full, or both of the key's buckets and
  // all that theirs could go to are. Another record may move: its new index is given to `moved`,
  // which may erase it. Other indices stay.
  // Requires: the key is absent.
  template <typename Moved>
  Index Insert(const Place& place, const BlockKey& key, Moved moved) {
    if (size_ >= most_) return kNone;
    Index index = FreeIn(place);
    if (index == kNone) {
      index = MakeRoom(place.buckets[0], moved);
      if (index == kNone) index = MakeRoom(place.buckets[1], moved);
      if (index == kNone) return kNone;
    }
    Tags()[index] = place.tag;
    (*this)[index] = Record{key, Value{}};
    ++size_;
    return index;
  }
  Index Insert(const Place& place, const BlockKey& key) {
    return Insert(place, key, [](Index) {});
  }

  void Erase(Index index) {
    DCHECK(Occupied(index), "place {} is free", index);
    Tags()[index] = 0;
    --size_;
  }

  Record& operator[](Index index) { return const_cast<Record&>(RecordAt(index)); }
  const Record& operator[](Index index) const { return RecordAt(index); }
  bool Occupied(Index index) const { return Tags()[index] != 0; }

  int64_t size() const { return size_; }
  int64_t most() const { return most_; }
  int64_t places() const { return int64_t{buckets_} * kBucket; }  // Indices: 0 .. places() - 1.
  Bytes bytes() const { return tags_.size() + records_.size(); }

  // CHECKs that each key can be found where it lies. For tests.
  void Verify() const {
    int64_t used = 0;
    for (Index index = 0; index < static_cast<Index>(places()); ++index) {
      if (!Occupied(index)) continue;
      ++used;
      const Place place = PlaceOf(RecordAt(index).key);
      CHECK(Tags()[index] == place.tag, "the tag of place {}", index);
      CHECK(Find(place, RecordAt(index).key) == index, "the key of place {}", index);
    }
    CHECK(used == size_ && used <= most_, "{} places used, {} counted", used, size_);
  }

 private:
  static constexpr int kBucket = 16;
  KeyTable() = default;

  static uint64_t Fold(uint64_t a, uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  uint32_t Scaled(uint64_t hash) const {
    return static_cast<uint32_t>(((hash >> 32) * buckets_) >> 32);
  }

  uint8_t* Tags() const { return reinterpret_cast<uint8_t*>(tags_.data()); }
  const uint8_t* TagsOf(uint32_t bucket) const { return Tags() + size_t{bucket} * kBucket; }
  const Record& RecordAt(Index index) const {
    return reinterpret_cast<const Record*>(records_.data())[index];
  }
  // The top bit of each byte of `bucket`'s half that equals `tag`.
  uint64_t Matches(uint32_t bucket, int half, uint8_t tag) const {
    constexpr uint64_t kLow = 0x7f7f7f7f7f7f7f7f;
    uint64_t different;
    std::memcpy(&different, TagsOf(bucket) + 8 * half, sizeof different);
    different ^= uint64_t{0x0101010101010101} * tag;
    return ~(((different & kLow) + kLow) | different | kLow);
  }
  // Which of both buckets' places have `tag`, without a branch: bit 8 i + 2 b + h stands for place
  // i of half h of bucket b.
  static constexpr uint64_t kFirstBucket = 0x0303030303030303;
  uint64_t Tagged(const Place& place, uint8_t tag) const {
    const auto [first, second] = place.buckets;
    return Matches(first, 0, tag) >> 7 | Matches(first, 1, tag) >> 6 |
           Matches(second, 0, tag) >> 5 | Matches(second, 1, tag) >> 4;
  }
  static Index IndexOf(const Place& place, uint64_t tagged) {
    const auto bit = static_cast<Index>(std::countr_zero(tagged));
    return place.buckets[bit >> 1 & 1] * kBucket + (bit & 1) * 8 + bit / 8;
  }
  // A record that may be the key's, by its tag, in one of its buckets; kNone: none there is.
  Index Candidate(const Place& place, int bucket) const {
    const uint64_t found = Matches(place.buckets[bucket], 0, place.tag) >> 7 |
                           Matches(place.buckets[bucket], 1, place.tag) >> 6;
    return found == 0 ? kNone : IndexOf(place, bucket == 0 ? found : found << 2);
  }

  void PrefetchRecord(Index index) const {
    const auto* record = reinterpret_cast<const char*>(&RecordAt(index));
    __builtin_prefetch(record);
    __builtin_prefetch(record + sizeof(Record) - 1);
  }
  // A free place, of the first bucket where it has any.
  Index FreeIn(const Place& place) const {
    const uint64_t free = Tagged(place, 0);
    if (free == 0) return kNone;
    const uint64_t first = free & kFirstBucket;
    return IndexOf(place, first != 0 ? first : free);
  }
  // Moves the first record of a full bucket that can go elsewhere.
  template <typename Moved>
  Index MakeRoom(uint32_t bucket, Moved moved) {
    for (Index from = bucket * kBucket; from < (bucket + 1) * kBucket; ++from) {
      const Place place = PlaceOf(RecordAt(from).key);
      const Index to = FreeIn(place);
      if (to == kNone) continue;
      Tags()[to] = place.tag;
      Tags()[from] = 0;
      (*this)[to] = RecordAt(from);
      moved(to);
      return from;
    }
    return kNone;
  }

  int64_t most_ = 0;
  int64_t size_ = 0;
  uint64_t seed_ = 0;
  uint32_t buckets_ = 0;
  HugeMemory tags_;     // 0: free.
  HugeMemory records_;  // Of a free place: worthless.
};

}  // namespace divisi
