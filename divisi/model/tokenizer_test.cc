#include "divisi/model/tokenizer.h"

#include <gmock/gmock.h>

#include <iterator>
#include <thread>

#include "divisi/core/file.h"
#include "divisi/core/json.h"
#include "divisi/core/random.h"
#include "divisi/core/utf8.h"
#include "divisi/model/added_tokens.h"
#include "divisi/model/byte_level.h"

namespace divisi {
namespace {

const std::filesystem::path kSource = DIVISI_SOURCE_DIR;

std::vector<TokenId> Ids(const Json& array) {
  std::vector<TokenId> ids;
  for (const Json& id : array.as_array()) ids.push_back(static_cast<TokenId>(id.as_int()));
  return ids;
}

Json Golden() {
  return Json::Parse(ReadFile(kSource / "tests/golden/tokenizer.json", 1 << 20).value()).value();
}

TEST(TokenizerGoldenTest, Encodes) {
  const Tokenizer tokenizer = Tokenizer::Load(kSource / "models/tiny-qwen3").value();
  const Json golden = Golden();
  const Json::Array& cases = golden.Find("cases")->as_array();
  EXPECT_GT(cases.size(), 200u);
  for (const Json& item : cases) {
    const std::string& text = item.Find("text")->as_string();
    const std::vector<TokenId> ids = Ids(*item.Find("ids"));
    EXPECT_EQ(tokenizer.Encode(text, false), ids) << item.Dump();
    EXPECT_EQ(tokenizer.Decode(ids, false), item.Find("decoded")->as_string()) << item.Dump();
  }
}

TEST(TokenizerGoldenTest, Decodes) {
  const Tokenizer tokenizer = Tokenizer::Load(kSource / "models/tiny-qwen3").value();
  const Json golden = Golden();
  const Json::Array& cases = golden.Find("decode_cases")->as_array();
  EXPECT_GT(cases.size(), 30u);
  for (const Json& item : cases) {
    const std::vector<TokenId> ids = Ids(*item.Find("ids"));
    std::string hex;
    for (const TokenId id : ids) {
      for (const char byte : tokenizer.TokenBytes(id)) {
        hex += Format("{:02x}", static_cast<unsigned char>(byte));
      }
    }
    EXPECT_EQ(hex, item.Find("bytes_hex")->as_string()) << item.Dump();
    EXPECT_EQ(tokenizer.Decode(ids, false), item.Find("text")->as_string()) << item.Dump();
    EXPECT_EQ(tokenizer.Decode(ids, true), item.Find("text_skip_special")->as_string())
        << item.Dump();
  }
}

// A file whose vocabulary is the 256 bytes under their own values, then `merges` and what `rest` of
// the top level says.
Tokenizer Make(const std::vector<std::pair<std::string, std::string>>& merges,
               std::string_view model, std::string_view rest) {
  Json vocab;
  for (int byte = 0; byte < 256; ++byte) {
    vocab.Set(ToByteLevel(std::string(1, static_cast<char>(byte))), byte);
  }
  Json list = Json::MakeArray();
  int next = 256;
  for (const auto& [left, right] : merges) {
    vocab.Set(ToByteLevel(left + right), next++);
    list.Append(ToByteLevel(left) + " " + ToByteLevel(right));
  }
  const std::string text = Format(
      R"({{"decoder":{{"type":"ByteLevel"}},{},"model":{{"type":"BPE",{}"vocab":{},"merges":{}}}}})",
      rest, model, vocab.Dump(), list.Dump());
  auto parsed = Tokenizer::Parse(text);
  EXPECT_TRUE(parsed.ok()) << (parsed.ok() ? "" : parsed.error().message);
  return std::move(parsed).value();
}

Tokenizer Gpt2(std::string_view added_tokens) {
  return Make({{"h", "i"}, {" ", "hi"}}, "",
              Format(R"("pre_tokenizer":{{"type":"ByteLevel","add_prefix_space":false}},
                        "normalizer":null,"added_tokens":{})",
                     added_tokens));
}

Tokenizer Llama3() {
  constexpr std::string_view kModel = R"("ignore_merges":true,)";
  constexpr std::string_view kRest = R"("normalizer":null,
    "added_tokens":[{"id":300,"content":"<|begin_of_text|>","special":true},
                    {"id":301,"content":"<|eot_id|>","special":true}],
    "pre_tokenizer":{"type":"Sequence","pretokenizers":[
      {"type":"Split","behavior":"Isolated","invert":false,"pattern":{"Regex":
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
      {"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]},
    "post_processor":{"type":"Sequence","processors":[
      {"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false,"use_regex":true},
      {"type":"TemplateProcessing",
       "single":[{"SpecialToken":{"id":"<|begin_of_text|>","type_id":0}},
                 {"Sequence":{"id":"A","type_id":0}}],
       "pair":[],
       "special_tokens":{"<|begin_of_text|>":
         {"id":"<|begin_of_text|>","ids":[300],"tokens":["<|begin_of_text|>"]}}}]})";
  // "abc" is an entry that its merges never reach: "bc" comes first, and "a", "bc" has no rule.
  return Make({{"b", "c"}, {"a", "b"}, {"ab", "c"}, {"1", "2"}, {"12", "3"}}, kModel, kRest);
}

using Tokens = std::vector<TokenId>;

TEST(TokenizerTest, Llama3PutsTheTemplateAroundTheText) {
  const Tokenizer tokenizer = Llama3();
  EXPECT_EQ(tokenizer.Encode("d", true), (Tokens{300, 'd'}));
  EXPECT_EQ(tokenizer.Encode("d", false), (Tokens{'d'}));
  EXPECT_EQ(tokenizer.Encode("", true), (Tokens{300}));
  EXPECT_EQ(tokenizer.Encode("<|begin_of_text|>d<|eot_id|>", true), (Tokens{300, 300, 'd', 301}));
  EXPECT_EQ(tokenizer.vocab_size(), 302);
}

TEST(TokenizerTest, IgnoreMergesKeepsAPieceThatIsAnEntryWhole) {
  const Tokenizer tokenizer = Llama3();
  EXPECT_EQ(tokenizer.Encode("abc", false), (Tokens{258}));
  EXPECT_EQ(tokenizer.Encode("abcd", false), (Tokens{'a', 256, 'd'}));
  EXPECT_EQ(tokenizer.Encode("123123", false), (Tokens{260, 260}));
}

TEST(TokenizerTest, AddedTokensOfGpt2) {
  const Tokenizer tokenizer = Gpt2(R"([
      {"id":300,"content":"<|endoftext|>","special":true},
      {"id":301,"content":"<hi>","special":false},
      {"id":302,"content":"<l>","special":false,"lstrip":true},
      {"id":303,"content":"<r>","special":true,"rstrip":true},
      {"id":304,"content":"word","single_word":true}])");
  EXPECT_EQ(tokenizer.Encode("hi hi<hi> hi", false), (Tokens{256, 257, 301, 257}));
  EXPECT_EQ(tokenizer.Encode("x  <l> y", false), (Tokens{'x', 302, ' ', 'y'}));
  EXPECT_EQ(tokenizer.Encode("x <r>  y", false), (Tokens{'x', ' ', 303, 'y'}));
  EXPECT_EQ(tokenizer.Encode("word.words", false), (Tokens{304, '.', 'w', 'o', 'r', 'd', 's'}));
  EXPECT_EQ(tokenizer.Decode(Tokens{256, 301, 300, 257}, true), "hi<hi> hi");
  EXPECT_EQ(tokenizer.Decode(Tokens{256, 301, 300, 257}, false), "hi<hi><|endoftext|> hi");
  EXPECT_FALSE(tokenizer.IsSpecial(301));
  EXPECT_TRUE(tokenizer.IsSpecial(303));
}

TEST(TokenizerTest, FindsTokensByWhatTheFileCallsThem) {
  const Tokenizer tokenizer = Gpt2(R"([{"id":300,"content":"<|endoftext|>","special":true}])");
  EXPECT_EQ(tokenizer.FindToken("Ġhi"), 257);
  EXPECT_EQ(tokenizer.FindToken("<|endoftext|>"), 300);
  EXPECT_EQ(tokenizer.FindToken(" hi"), std::nullopt);
  EXPECT_EQ(tokenizer.TokenBytes(257), " hi");
  EXPECT_EQ(tokenizer.TokenBytes(0xC3), "\xC3");
}

TEST(TokenizerTest, UnknownIdsContributeNothing) {
  const Tokenizer tokenizer = Gpt2(R"([{"id":300,"content":"<e>","special":true}])");
  EXPECT_EQ(tokenizer.Decode(Tokens{256, -1, 299, 301, 1 << 30, 257}, false), "hi hi");
  EXPECT_EQ(tokenizer.TokenBytes(299), "");
  EXPECT_FALSE(tokenizer.IsSpecial(-1));
}

TEST(TokenizerTest, NormalizedTokensAreFoundInNormalisedText) {
  const Tokenizer tokenizer = Make({}, "", R"("normalizer":{"type":"NFC"},
      "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},
      "added_tokens":[{"id":300,"content":"caf\u00e9","normalized":true},
                      {"id":301,"content":"th\u00e9","normalized":false}])");
  EXPECT_EQ(tokenizer.Encode("cafe\u0301", false), (Tokens{300}));
  EXPECT_EQ(tokenizer.Encode("café", false), (Tokens{300}));
  EXPECT_EQ(tokenizer.Encode("thé", false), (Tokens{301}));
  EXPECT_EQ(tokenizer.Encode("the\u0301", false), (Tokens{'t', 'h', 0xC3, 0xA9}));
  EXPECT_EQ(tokenizer.Decode(Tokens{300}, false), "café") << "an added token is its own text";
}

TEST(TokenizerTest, RefusesAnAddedTokenThatNormalisationMakesTooLong) {
  const std::string file = ReadFile(kSource / "tests/corpus/tokenizer/bad_grows_in_nfc.json",
                                    AddedTokenFinder::kMaxContentBytes * 4)
                               .value();
  const auto parsed = Tokenizer::Parse(file);
  ASSERT_FALSE(parsed.ok()) << "341 times U+0958 is 1023 bytes, and 2046 in NFC";
  EXPECT_EQ(parsed.error().code, Code::kInvalidArgument);
  EXPECT_THAT(parsed.error().message, testing::HasSubstr("added token 2 has 2046 bytes"));
}

TEST(TokenizerTest, BrokenTextIsReadAsReplacementCharacters) {
  const Tokenizer tokenizer = Gpt2("[]");
  EXPECT_EQ(tokenizer.Encode("hi\xFF", false), (Tokens{256, 0xEF, 0xBF, 0xBD}));
  EXPECT_EQ(tokenizer.Encode("\xE2\x82", false), (Tokens{0xEF, 0xBF, 0xBD}));
}

TEST(TokenizerTest, LoadSaysWhichFile) {
  EXPECT_EQ(Tokenizer::Load("/nonexistent").error().code, Code::kNotFound);
}

// Text of all planes, with marks, white space and pieces of special tokens.
std::string RandomText(Random& random) {
  static constexpr std::string_view kParts[] = {" ",          "\n",    "\r\n", "'s",
                                                "<|im_end|>", "<|im_", "12"};
  std::string utf8;
  for (int64_t i = random.Between(0, 40); i > 0; --i) {
    static constexpr int64_t kEnds[] = {0x7F, 0x7FF, 0xD7FF, 0x10FFFF};
    const int64_t code_point = random.Between(0, kEnds[random.Between(0, 3)]);
    if (random.Chance(0.3)) {
      utf8 += kParts[random.Between(0, std::ssize(kParts) - 1)];
    } else if (code_point < 0xD800 || code_point > 0xDFFF) {
      AppendUtf8(static_cast<char32_t>(code_point), utf8);
    }
  }
  return utf8;
}

TEST(TokenizerTest, DecodeUndoesEncode) {
  const Tokenizer tokenizer = Llama3();  // Without a normaliser, and with every byte.
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    const std::string text = RandomText(random);
    ASSERT_EQ(tokenizer.Decode(tokenizer.Encode(text, false), false), text) << "seed " << seed;
  }
}

TEST(TokenizerTest, ThreadsShareOne) {
  const Tokenizer tokenizer = Tokenizer::Load(kSource / "models/tiny-qwen3").value();
  const auto encode_all = [&](uint64_t first) {
    std::vector<Tokens> all;
    for (uint64_t seed = first; seed < first + 200; ++seed) {
      Random random(seed);
      all.push_back(tokenizer.Encode(RandomText(random), false));
    }
    return all;
  };
  const std::vector<Tokens> expected = encode_all(0);
  std::vector<std::vector<Tokens>> got(4);
  std::vector<std::thread> threads;
  for (auto& mine : got) threads.emplace_back([&] { mine = encode_all(0); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : got) EXPECT_EQ(mine, expected);
}

TEST(StreamDecoderTest, PushesAndFinishMakeTheWholeText) {
  const Tokenizer tokenizer = Tokenizer::Load(kSource / "models/tiny-qwen3").value();
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    Random random(seed);
    const bool skip = random.Chance(0.5);
    // Mostly single bytes above 0x7F, which make and break sequences.
    Tokens ids;
    for (int64_t i = random.Between(0, 12); i > 0; --i) {
      ids.push_back(static_cast<TokenId>(random.Chance(0.7) ? random.Between(94, 255)
                                                            : random.Between(-2, 2050)));
    }
    StreamDecoder stream(tokenizer, skip);
    std::string text;
    for (const TokenId id : ids) {
      const std::string part = stream.Push(id);
      ASSERT_TRUE(IsUtf8(part)) << "seed " << seed;
      text += part;
    }
    text += stream.Finish();
    ASSERT_EQ(text, tokenizer.Decode(ids, skip)) << "seed " << seed;
    ASSERT_EQ(stream.Finish(), "");
  }
}

TEST(StreamDecoderTest, WaitsForTheRestOfACharacterAndNoLonger) {
  const Tokenizer tokenizer = Gpt2("[]");
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.Push(0xE2), "");
  EXPECT_EQ(stream.Push(0x82), "");
  EXPECT_EQ(stream.Push(0xAC), "€");
  EXPECT_EQ(stream.Push(0xE2), "");
  EXPECT_EQ(stream.Push(256), "\uFFFDhi");
  EXPECT_EQ(stream.Push(0xF0), "");
  EXPECT_EQ(stream.Finish(), "\uFFFD");
}

}  // namespace
}  // namespace divisi
