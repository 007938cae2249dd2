#include "divisi/kv/key_table.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "divisi/core/random.h"

namespace divisi {
namespace {

BlockKey RandomKey(Random& random) {
  BlockKey key;
  for (int i = 0; i < 4; ++i) {
    const uint64_t word = random.Next64();
    std::memcpy(key.bytes.data() + 8 * i, &word, sizeof word);
  }
  return key;
}

KeyTable<int> TableFor(int64_t keys) {
  auto table = KeyTable<int>::Create(keys, 0, "a test");
  CHECK(table.ok());
  return *std::move(table);
}

TEST(KeyTableTest, TheWholeKeyDecides) {
  // In two buckets at most, with tags of one byte, most of the keys have a tag in common too.
  KeyTable<int> table = TableFor(27);
  Random random(1);
  const BlockKey first = RandomKey(random);
  std::vector<BlockKey> keys;
  for (int i = 0; i < 27; ++i) {
    BlockKey key = first;
    key.bytes[8 + i % 24] = static_cast<uint8_t>(key.bytes[8 + i % 24] + 1 + i / 24);
    ASSERT_EQ(table.Find(key), table.kNone);
    const auto index = table.Insert(table.PlaceOf(key), key);
    if (index == table.kNone) continue;
    table[index].value = i;
    keys.push_back(key);
  }
  EXPECT_EQ(keys.size(), 27u);
  for (const BlockKey& key : keys) EXPECT_EQ(table[table.Find(key)].key, key);
  table.Verify();
}

TEST(KeyTableTest, KeysOfOneTagAndBucketAreToldApart) {
  KeyTable<int> table = TableFor(10);  // One bucket.
  Random random(2);
  const auto tag = table.PlaceOf(BlockKey{}).tag;
  std::vector<BlockKey> keys = {BlockKey{}};
  while (keys.size() < 10) {
    const BlockKey key = RandomKey(random);
    if (table.PlaceOf(key).tag == tag) keys.push_back(key);
  }
  for (int i = 0; i < 9; ++i) table[table.Insert(table.PlaceOf(keys[i]), keys[i])].value = i;
  for (int i = 0; i < 9; ++i) EXPECT_EQ(table[table.Find(keys[i])].value, i);
  EXPECT_EQ(table.Find(keys[9]), table.kNone);
  table.Erase(table.Find(keys[4]));
  EXPECT_EQ(table.Find(keys[4]), table.kNone);
  EXPECT_EQ(table[table.Find(keys[5])].value, 5);
  table.Verify();
}

TEST(KeyTableTest, FillsToItsCapacityAndNoFurther) {
  constexpr int64_t kKeys = 100'000;
  KeyTable<int> table = TableFor(kKeys);
  Random random(3);
  int64_t refused = 0;
  while (table.size() < kKeys) {
    const BlockKey key = RandomKey(random);
    refused += table.Insert(table.PlaceOf(key), key) == table.kNone;
    ASSERT_LT(refused, 10);
  }
  const BlockKey key = RandomKey(random);
  EXPECT_EQ(table.Insert(table.PlaceOf(key), key), table.kNone);
  EXPECT_EQ(table.size(), kKeys);
  EXPECT_LE(table.bytes().value, kKeys * (36 + 1) * 100 / 85 + 4096);
  table.Verify();
}

TEST(KeyTableTest, EqualsAMap) {
  Random random(4);
  KeyTable<int> table = TableFor(200);
  std::map<BlockKey, int> model;
  std::vector<BlockKey> keys;
  for (int i = 0; i < 300; ++i) keys.push_back(RandomKey(random));
  for (int step = 0; step < 20'000; ++step) {
    const BlockKey& key = keys[random.Between(0, 299)];
    const auto index = table.Find(key);
    ASSERT_EQ(index != table.kNone, model.contains(key));
    if (index != table.kNone) {
      ASSERT_EQ(table[index].value, model.at(key));
      if (random.Chance(0.5)) {
        table.Erase(index);
        model.erase(key);
      }
      continue;
    }
    const auto inserted = table.Insert(table.PlaceOf(key), key);
    ASSERT_TRUE(inserted != table.kNone || model.size() == 200) << model.size();
    if (inserted != table.kNone) table[inserted].value = model[key] = step;
  }
  table.Verify();
}

}  // namespace
}  // namespace divisi
