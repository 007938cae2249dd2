// Input that begins with '{' is a tokenizer.json; where it is read, texts go through it. Other
// input is a text for a tokenizer of our own. Either way encoding and decoding keep their promises.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "divisi/core/check.h"
#include "divisi/core/json.h"
#include "divisi/core/utf8.h"
#include "divisi/model/byte_level.h"
#include "divisi/model/tokenizer.h"

namespace divisi {
namespace {

// Bounds one run: a pattern may look at the rest of the text from every place in it.
constexpr size_t kMaxTextBytes = 4096;

constexpr std::string_view kText =
    " Hello  world's 12345\r\n\r\n\t caf\u00E9 cafe\u0301 \u4F60\u597D \U0001F600<|end|> <b> x\xFF";

void CheckDecoding(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  for (const bool skip_special : {false, true}) {
    StreamDecoder stream(tokenizer, skip_special);
    std::string text;
    for (const TokenId id : ids) text += stream.Push(id);
    text += stream.Finish();
    CHECK(text == tokenizer.Decode(ids, skip_special));
    CHECK(IsUtf8(text));
  }
}

std::vector<TokenId> CheckText(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<TokenId> ids = tokenizer.Encode(text, true);
  for (const TokenId id : ids) CHECK(id >= 0 && id < tokenizer.vocab_size(), "id {}", id);
  CheckDecoding(tokenizer, ids);
  return ids;
}

// Llama 3's pattern over the 256 bytes and a few merges, so that no text is lost.
Tokenizer MakeOwn() {
  Json vocab;
  for (int byte = 0; byte < 256; ++byte) {
    vocab.Set(ToByteLevel(std::string(1, static_cast<char>(byte))), byte);
  }
  Json merges = Json::MakeArray();
  int next = 256;
  for (const auto& [left, right] : std::vector<std::pair<std::string, std::string>>{
           {"a", "a"}, {"aa", "a"}, {" ", "a"}, {"\xE4", "\xBD"}, {"1", "2"}, {"\n", "\n"}}) {
    vocab.Set(ToByteLevel(left + right), next++);
    merges.Append(ToByteLevel(left) + " " + ToByteLevel(right));
  }
  constexpr std::string_view kFile = R"j({{
    "added_tokens":[{{"id":300,"content":"<|end|>","special":true}},
                    {{"id":301,"content":"<b>","normalized":true}},
                    {{"id":302,"content":"aab","single_word":true}}],
    "pre_tokenizer":{{"type":"Sequence","pretokenizers":[
      {{"type":"Split","behavior":"Isolated","pattern":{{"Regex":
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{{L}}\\p{{N}}]?\\p{{L}}+|\\p{{N}}{{1,3}}| ?[^\\s\\p{{L}}\\p{{N}}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}}}},
      {{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}}]}},
    "decoder":{{"type":"ByteLevel"}},
    "model":{{"type":"BPE","vocab":{},"merges":{}}}}})j";
  auto own = Tokenizer::Parse(Format(kFile, vocab.Dump(), merges.Dump()));
  CHECK(own.ok(), "{}", own.error().message);
  return std::move(own).value();
}

void FuzzFile(std::string_view json) {
  const auto tokenizer = Tokenizer::Parse(json);
  if (!tokenizer) {
    CHECK(!tokenizer.error().message.empty());
    return;
  }
  CheckText(*tokenizer, kText);
  CheckText(*tokenizer, json.substr(0, kMaxTextBytes));
  std::vector<TokenId> every;
  for (TokenId id = -1; id <= std::min(tokenizer->vocab_size(), 1000); ++id) every.push_back(id);
  CheckDecoding(*tokenizer, every);
}

void FuzzText(std::string_view text) {
  static const Tokenizer own = MakeOwn();
  text = text.substr(0, kMaxTextBytes);
  const std::vector<TokenId> ids = CheckText(own, text);
  CHECK(own.Decode(ids, false) == RepairUtf8(text));
  std::vector<TokenId> bytes;
  for (const char byte : text) bytes.push_back(static_cast<unsigned char>(byte));
  CHECK(own.Decode(bytes, false) == RepairUtf8(text));
}

}  // namespace
}  // namespace divisi

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.starts_with('{')) {
    divisi::FuzzFile(input);
  } else {
    divisi::FuzzText(input);
  }
  return 0;
}
