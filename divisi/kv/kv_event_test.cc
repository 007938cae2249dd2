#include "divisi/kv/kv_event.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "divisi/core/json.h"
#include "divisi/kv/msgpack.h"

namespace divisi {
namespace {

// What vLLM sends; made by other code from its definitions.
constexpr std::string_view kPositional =
    "93cb3ff80000000000009397ab426c6f636b53746f72656491cfb0147556276afc9cc0dc0010000102030405060708"
    "090a0b0c0d0e0f10c0a347505593ac426c6f636b52656d6f76656491cfb0147556276afc9ca347505591b0416c6c42"
    "6c6f636b73436c656172656400";
constexpr std::string_view kMap =
    "93cb3ff8000000000000928ba474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391cfb01475"
    "56276afc9cb1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473dc001000010203040506070809"
    "0a0b0c0d0e0faa626c6f636b5f73697a6510a76c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e616d"
    "65c0aa65787472615f6b65797391c0a967726f75705f69647800b26b765f63616368655f737065635f6b696e64ae66"
    "756c6c5f617474656e74696f6e81a474797065b0416c6c426c6f636b73436c656172656400";

std::string FromHex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

StoredEvent Stored() {
  StoredEvent event;
  event.hashes = {EventHash(uint64_t{12687895063098490012u})};
  event.tokens.resize(16);
  std::iota(event.tokens.begin(), event.tokens.end(), 0);
  event.block_size = 16;
  event.medium = "GPU";
  return event;
}

// [1.5, [event], 0], of one event's bytes.
Result<EventBatch> DecodeOne(std::string_view event) {
  MsgpackWriter out;
  out.Array(3);
  out.Float(1.5);
  out.Array(1);
  out.Raw(event);
  out.Int(0);
  return DecodeEventBatch(out.Take());
}

TEST(KvEventTest, ThePositionalShapeIsVllms) {
  EventBatch batch;
  batch.time_seconds = 1.5;
  batch.data_parallel_rank = 0;
  batch.events = {Stored(), RemovedEvent{Stored().hashes, "GPU", {}, {}}, ClearedEvent{}};
  const auto decoded = DecodeEventBatch(FromHex(kPositional));
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(*decoded, batch);
  EXPECT_EQ(EncodeEventBatch(batch, EventShape::kPositional), FromHex(kPositional));
}

TEST(KvEventTest, TheMapShapeIsVllms) {
  StoredEvent stored = Stored();
  stored.extra_keys = std::vector<BlockExtras>{std::nullopt};
  stored.group = 0;
  stored.spec_kind = "full_attention";
  EventBatch batch{1.5, {stored, ClearedEvent{}}, 0, {}};
  const auto decoded = DecodeEventBatch(FromHex(kMap));
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(*decoded, batch);
  EXPECT_EQ(EncodeEventBatch(batch, EventShape::kMap), FromHex(kMap));
}

TEST(KvEventTest, ReadsAnyNumberOfPositionalFields) {
  MsgpackWriter all;
  all.Array(14);
  all.Text("BlockStored");
  all.Array(1);
  all.Int(-5);  // SGLang
  all.Bytes("digest");
  all.Array(0);
  all.Int(16);
  all.Int(3);
  all.Text("CPU");
  all.Text("adapter");
  all.Array(1);
  all.Array(4);
  all.Text("salt");
  all.Array(2);
  all.Text("image");
  all.Int(-7);
  all.Bytes("digest");
  all.Float(2.5);
  all.Int(1);
  all.Text("sliding_window");
  all.Int(1024);
  all.Text("later");
  all.Nil();
  const std::string whole = all.Take();
  const auto decoded = DecodeOne(whole);
  ASSERT_TRUE(decoded.ok());
  const auto& event = std::get<StoredEvent>(decoded->events[0]);
  EXPECT_EQ(event.hashes[0], EventHash(int64_t{-5}));
  EXPECT_EQ(event.parent, EventHash(std::string("digest")));
  EXPECT_TRUE(event.tokens.empty());
  EXPECT_EQ(event.lora_id, 3);
  EXPECT_EQ(event.lora_name, "adapter");
  ASSERT_TRUE(event.extra_keys && (*event.extra_keys)[0]);
  const auto& extras = *(*event.extra_keys)[0];
  EXPECT_EQ(extras[0], (ExtraKey{ExtraKey::Kind::kText, "salt", 0}));
  EXPECT_EQ(extras[1], (ExtraKey{ExtraKey::Kind::kPair, "image", -7}));
  EXPECT_EQ(extras[2], (ExtraKey{ExtraKey::Kind::kBytes, "digest", 0}));
  EXPECT_EQ(extras[3].kind, ExtraKey::Kind::kOther);
  EXPECT_EQ(event.sliding_window, 1024);
  EXPECT_EQ(event.more.size(), 2u);
  EXPECT_NE(EncodeEventBatch(*decoded, EventShape::kPositional).find(whole), std::string::npos);

  for (uint32_t fields = 0; fields < 6; ++fields) {
    MsgpackWriter cut;
    cut.Array(1 + fields);
    cut.Text("BlockStored");
    if (fields > 0) cut.Array(0);
    if (fields > 1) cut.Nil();
    if (fields > 2) cut.Array(0);
    if (fields > 3) cut.Int(16);
    if (fields > 4) cut.Nil();
    const auto some = DecodeOne(cut.Take());
    ASSERT_TRUE(some.ok());
    EXPECT_TRUE(std::holds_alternative<StoredEvent>(some->events[0])) << fields;
  }
}

TEST(KvEventTest, KeepsUnknownKeysAndUnknownEvents) {
  MsgpackWriter map;
  map.Map(4);
  map.Text("locality");
  map.Array(1);
  map.Text("zone");
  map.Text("medium");
  map.Text("DISK");
  map.Text("type");  // Not first.
  map.Text("BlockRemoved");
  map.Text("block_hashes");
  map.Array(1);
  map.Unsigned(std::numeric_limits<uint64_t>::max());
  auto decoded = DecodeOne(map.Take());
  ASSERT_TRUE(decoded.ok());
  const auto& removed = std::get<RemovedEvent>(decoded->events[0]);
  EXPECT_EQ(removed.medium, "DISK");
  ASSERT_EQ(removed.more.size(), 1u);
  EXPECT_EQ(removed.more[0].name, "locality");
  EXPECT_EQ(*DecodeEventBatch(EncodeEventBatch(*decoded, EventShape::kMap)), *decoded);

  MsgpackWriter other;
  other.Array(2);
  other.Text("BlockMoved");
  other.Int(1);
  const std::string moved = other.Take();
  decoded = DecodeOne(moved);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->events[0], KvEvent(OtherEvent{"BlockMoved", moved}));
}

TEST(KvEventTest, AnEventOfWrongFieldsIsAnotherOneThatLeavesTheBatchWhole) {
  MsgpackWriter wrong;
  wrong.Array(2);
  wrong.Text("BlockRemoved");
  wrong.Text("no list");
  const std::string raw = wrong.Take();
  const auto decoded = DecodeOne(raw);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->events[0], KvEvent(OtherEvent{"BlockRemoved", raw}));
  EXPECT_EQ(decoded->data_parallel_rank, 0);
}

TEST(KvEventTest, TheRankMayBeMissing) {
  const std::string bytes = FromHex("92cb3ff800000000000090");
  const auto decoded = DecodeEventBatch(bytes);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->data_parallel_rank, std::nullopt);
}

TEST(KvEventTest, RefusesWhatIsNoBatch) {
  for (const std::string hex :
       {"", "00", "90", "91cb3ff8000000000000", "92cb3ff8000000000000", "92cb7ff800000000000090",
        "92cb3ff80000000000009100ff", "93cb3ff8000000000000900000",
        "92cb3ff8000000000000dd7fffffff", "93cb3ff800000000000090a100"}) {
    const auto decoded = DecodeEventBatch(FromHex(hex));
    ASSERT_FALSE(decoded.ok()) << hex;
    EXPECT_EQ(decoded.error().code, Code::kDataLoss);
  }
  const auto large = DecodeEventBatch(std::string(kMaxBatchBytes + 1, '\x90'));
  EXPECT_EQ(large.error().code, Code::kOutOfRange);
  // Every prefix of a batch, which ends before it should.
  const std::string whole = FromHex(kMap);
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(DecodeEventBatch(std::string_view(whole).substr(0, size)).ok()) << size;
  }
}

TEST(KvEventTest, HashesOfABatchAreBounded) {
  StoredEvent event;
  event.hashes.resize(kMaxBatchHashes);
  const EventBatch most{1.5, {event}, {}, {}};
  EXPECT_EQ(*DecodeEventBatch(EncodeEventBatch(most, EventShape::kMap)), most);
  event.hashes.emplace_back();
  const auto above = DecodeEventBatch(EncodeEventBatch({1.5, {event}, {}, {}}, EventShape::kMap));
  ASSERT_TRUE(above.ok());
  EXPECT_TRUE(std::holds_alternative<OtherEvent>(above->events[0]));
}

TEST(KvEventTest, MediaOfAllVersionsHaveATier) {
  EXPECT_EQ(TierOfMedium(std::nullopt), EventTier::kDevice);
  for (const auto& [tier, names] : std::vector<std::pair<EventTier, std::vector<std::string>>>{
           {EventTier::kDevice, {"GPU"}},
           {EventTier::kHost, {"CPU", "CPU_PINNED", "CPU_TIER1", "CPU_TIER2"}},
           {EventTier::kDisk, {"DISK", "FS", "STORAGE"}},
           {EventTier::kRemote, {"OBJ", "EXTERNAL"}},
           {EventTier::kUnknown, {"", "gpu", "TAPE"}}}) {
    for (const std::string& name : names) EXPECT_EQ(TierOfMedium(name), tier) << name;
    if (tier != EventTier::kUnknown) {
      EXPECT_EQ(TierOfMedium(MediumOfTier(tier)), tier);
    }
  }
}

TEST(KvEventTest, OnlyFullAttentionIsEvidenceOfAPrefix) {
  EXPECT_TRUE(IsPrefixEvidence(std::nullopt));
  for (const char* kind : {"full_attention", "mla_attention", "sink_full_attention"}) {
    EXPECT_TRUE(IsPrefixEvidence(kind)) << kind;
  }
  for (const char* kind : {"sliding_window", "sliding_window_mla", "chunked_local_attention",
                           "mamba", "encoder_only", "cross", "of tomorrow"}) {
    EXPECT_FALSE(IsPrefixEvidence(kind)) << kind;
  }
}

TEST(KvEventTest, TokensOfABlock) {
  StoredEvent event = Stored();
  EXPECT_EQ(event.TokensOf(0).size(), 16u);
  EXPECT_TRUE(event.TokensOf(1).empty());
  event.hashes.push_back(event.hashes[0]);
  EXPECT_TRUE(event.TokensOf(0).empty());
  event.block_size = std::numeric_limits<int64_t>::min();
  EXPECT_TRUE(event.TokensOf(0).empty());
}

TEST(KvEventTest, PeopleAreShownTheFields) {
  const auto decoded = DecodeEventBatch(FromHex(kMap));
  ASSERT_TRUE(decoded.ok());
  const Json json = EventBatchJson(*decoded);
  EXPECT_EQ(json.Find("data_parallel_rank")->as_int(), 0);
  const Json& stored = json.Find("events")->as_array()[0];
  EXPECT_EQ(stored.Find("type")->as_string(), "BlockStored");
  EXPECT_EQ(stored.Find("block_hashes")->Dump(), "[\"12687895063098490012\"]");
  EXPECT_EQ(stored.Find("extra_keys")->Dump(), "[null]");
  EXPECT_EQ(EventHash(int64_t{-5}).Text(), "-5");
  EXPECT_EQ(EventHash(std::string("\x01\xff")).Text(), "01ff");
}

}  // namespace
}  // namespace divisi
