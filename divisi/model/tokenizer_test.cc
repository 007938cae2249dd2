#include "divisi/model/tokenizer.h"

#include <gtest/gtest.h>

#include "divisi/core/file.h"
#include "divisi/core/json.h"

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

}  // namespace
}  // namespace divisi
