#include "divisi/model/tokenizer_file.h"

#include <gmock/gmock.h>

#include "divisi/core/json.h"

namespace divisi {
namespace {

using ::testing::HasSubstr;

// A small file that is right; tests replace one member of it.
constexpr std::string_view kGood = R"({
  "version": "1.0", "truncation": {"max_length": 4}, "padding": null,
  "added_tokens": [{"id": 3, "content": "<end>", "special": true}],
  "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]},
  "pre_tokenizer": {"type": "ByteLevel"},
  "post_processor": null,
  "decoder": {"type": "Sequence", "decoders": [{"type": "ByteLevel"}]},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
})";

Json With(std::string_view member, std::string_view value) {
  Json file = Json::Parse(kGood).value();
  file.Set(member, Json::Parse(value).value());
  return file;
}

Json WithModel(std::string_view member, std::string_view value) {
  Json file = Json::Parse(kGood).value();
  Json model = *file.Find("model");
  model.Set(member, Json::Parse(value).value());
  file.Set("model", model);
  return file;
}

Error ErrorOf(const Json& file) {
  const auto read = ReadTokenizerFile(file.Dump());
  EXPECT_FALSE(read.ok()) << file.Dump();
  return read.ok() ? Error{} : read.error();
}

TEST(TokenizerFileTest, ReadsTheGoodFile) {
  const TokenizerFile file = ReadTokenizerFile(kGood).value();
  EXPECT_TRUE(file.nfc);
  EXPECT_FALSE(file.ignore_merges);
  ASSERT_EQ(file.merges.size(), 1u);
  EXPECT_EQ(file.merges[0].merged, 2);
  EXPECT_EQ(file.byte_tokens['b'], 1);
  EXPECT_EQ(file.byte_tokens['c'], BytePairs::kNoToken);
  EXPECT_TRUE(file.vocabulary.IsSpecial(3));
  EXPECT_FALSE(file.added_tokens[0].normalized) << "the default is not special";
}

TEST(TokenizerFileTest, ReadsMergesAsPairs) {
  const auto file = ReadTokenizerFile(WithModel("merges", R"([["a","b"]])").Dump());
  EXPECT_EQ(file.value().merges[0].merged, 2);
}

TEST(TokenizerFileTest, ModelWithoutTypeIsBpe) {
  EXPECT_TRUE(ReadTokenizerFile(WithModel("type", "null").Dump()).ok());
}

TEST(TokenizerFileTest, RefusesOtherKindsByName) {
  const auto expect = [](const Json& file, std::string_view name) {
    const Error error = ErrorOf(file);
    EXPECT_EQ(error.code, Code::kUnimplemented) << error.message;
    EXPECT_THAT(error.message, HasSubstr(name));
  };
  expect(WithModel("type", R"("Unigram")"), "Unigram");
  expect(WithModel("dropout", "0.1"), "dropout");
  expect(WithModel("byte_fallback", "true"), "byte_fallback");
  expect(WithModel("end_of_word_suffix", R"("</w>")"), "end_of_word_suffix");
  expect(WithModel("continuing_subword_prefix", R"("##")"), "continuing_subword_prefix");
  expect(WithModel("unk_token", R"("a")"), "unk_token");
  expect(With("normalizer", R"({"type":"Lowercase"})"), "Lowercase");
  expect(With("pre_tokenizer", R"({"type":"Whitespace"})"), "Whitespace");
  expect(With("post_processor", R"({"type":"BertProcessing"})"), "BertProcessing");
  expect(With("decoder", R"({"type":"WordPiece"})"), "WordPiece");
  expect(With("decoder", "null"), "decoder");
}

TEST(TokenizerFileTest, RefusesContradictions) {
  const auto expect = [](const Json& file, std::string_view text) {
    const Error error = ErrorOf(file);
    EXPECT_EQ(error.code, Code::kInvalidArgument) << error.message;
    EXPECT_THAT(error.message, HasSubstr(text));
  };
  expect(Json(3), "no model");
  expect(WithModel("vocab", R"({"a":0,"b":0})"), "same id 0");
  expect(WithModel("vocab", R"({"a":0,"b":-1})"), "-1");
  expect(WithModel("vocab", R"({"a":0,"b":5000000})"), "5000000");
  expect(WithModel("vocab", R"({"a":0,"b":"1"})"), "\"b\"");
  expect(WithModel("vocab", R"({"a":0,"":1})"), "empty");
  expect(WithModel("merges", R"(["a c"])"), "a c");
  expect(WithModel("merges", R"(["ab"])"), "no pair");
  expect(WithModel("merges", R"(["a b c"])"), "no pair");
  expect(WithModel("merges", R"([["a"]])"), "no pair");
  expect(With("added_tokens", R"([{"id":7,"content":"ab"}])"), "has id 7");
  expect(With("added_tokens", R"([{"id":1,"content":"x"}])"), "same id 1");
  expect(With("added_tokens", R"([{"content":"x"}])"), "lacks");
  expect(With("added_tokens", R"([{"id":9,"content":"x","lstrip":1}])"), "lstrip");
  expect(With("added_tokens", R"([{"id":9000000,"content":"x"}])"), "9000000");
  expect(With("post_processor", R"({"type":"TemplateProcessing","single":[]})"), "text");
  expect(With("post_processor", R"({"type":"TemplateProcessing",
         "single":[{"SpecialToken":{"id":"B"}},{"Sequence":{"id":"A"}}],
         "special_tokens":{"B":{"ids":[77]}}})"),
         "77");
  EXPECT_EQ(ReadTokenizerFile("{").error().code, Code::kInvalidArgument);
}

TEST(TokenizerFileTest, KeyTwiceInTheVocabularyIsRefused) {
  const std::string twice = R"({"decoder":{"type":"ByteLevel"},"pre_tokenizer":{"type":"ByteLevel"},
      "model":{"vocab":{"a":0,"a":1},"merges":[]}})";
  EXPECT_THAT(ReadTokenizerFile(twice).error().message, HasSubstr("twice"));
}

}  // namespace
}  // namespace divisi
