#include "divisi/cli/catalog_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string Text(const CatalogQuery& query) {
  const auto text = CatalogText(Catalog::BuiltIn(), query);
  return text ? *text : text.error().message;
}

TEST(CatalogViewTest, ListsKindsAndNames) {
  EXPECT_THAT(Text({}), AllOf(StartsWith("cards\n  A100 40GB PCIe\n"), HasSubstr("models\n")));
  EXPECT_THAT(Text({.kind = "cards"}), AllOf(HasSubstr("H20 SXM5 96GB\n"), HasSubstr("B200\n")));
  EXPECT_EQ(Text({.kind = "card"}), Text({.kind = "cards"}));
}

TEST(CatalogViewTest, ShowsFiguresWithTheirSources) {
  EXPECT_THAT(Text({.kind = "card", .name = "h20"}),
              AllOf(StartsWith("H20 SXM5 96GB\n"), HasSubstr("148 TFLOP/s"),
                    HasSubstr("arXiv:2504.02263"), HasSubstr("vGPU")));
  const Json json = CatalogJson(Catalog::BuiltIn(), {.kind = "models", .name = "Qwen3 8B"}).value();
  EXPECT_EQ(json.Find("name")->as_string(), "Qwen3 8B");
  EXPECT_EQ(json.Find("derived")->Find("parameters")->as_int(), 8'190'735'360);
  EXPECT_EQ(json.Find("derived")->Find("kv_bytes_per_token")->as_int(), 147'456);
  EXPECT_EQ(json.Find("figures")->as_array()[0].Find("key")->as_string(), "model_type");
}

TEST(CatalogViewTest, SaysWhatItDoesNotHave) {
  EXPECT_EQ(Text({.kind = "crads"}), "the catalogue has no 'crads'; did you mean cards?");
  EXPECT_THAT(Text({.kind = "links", .name = "NVLink B100"}),
              HasSubstr("there is no link 'NVLink B100'"));
}

}  // namespace
}  // namespace divisi
