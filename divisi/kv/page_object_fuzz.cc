// CheckPageObject on any bytes: it refuses them with a reason, or they are exactly what their own
// content encodes to. Each input is tried as it is and with the head's sum mended, without which
// next to none would pass that far.
#include <algorithm>

#include "divisi/kv/page_object.h"

namespace divisi {
namespace {

void Check(std::span<const std::byte> bytes) {
  const auto head = ReadPageHead(bytes);
  if (head) CHECK(CheckEncodable(head->header).ok());
  const auto page = CheckPageObject(bytes);
  if (!page) {
    CHECK(!page.error().message.empty() && page.error().message.size() < 500);
    return;
  }
  CHECK(head.ok() && head->header == page->header);
  CHECK(std::ranges::equal(EncodePageObject(page->header, bytes.subspan(kPageHeadBytes)), bytes));
}

}  // namespace
}  // namespace divisi

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace divisi;
  const auto given = std::as_bytes(std::span(data, size));
  Check(given);
  if (size < kPageHeadBytes) return 0;
  std::vector<std::byte> mended(given.begin(), given.end());
  const uint64_t sum = PageHeadSum(std::span(mended).first(kPageHeadBytes));
  for (size_t i = 0; i < sizeof sum; ++i) {
    mended[136 + i] = static_cast<std::byte>(sum >> (8 * i) & 0xff);
  }
  Check(mended);
  return 0;
}
