// DecodeEventBatch on any bytes: it refuses them, or what it gives survives being written and read
// again, in either shape; and nothing that people are shown of it fails.
#include "divisi/core/check.h"
#include "divisi/core/json.h"
#include "divisi/kv/kv_event.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace divisi;
  const auto batch = DecodeEventBatch({reinterpret_cast<const char*>(data), size});
  if (!batch) {
    CHECK(!batch.error().message.empty());
    return 0;
  }
  for (const EventShape shape : {EventShape::kPositional, EventShape::kMap}) {
    const std::string once = EncodeEventBatch(*batch, shape);
    const auto again = DecodeEventBatch(once);
    CHECK(again.ok(), "{}", again.error().message);
    CHECK(again->events.size() == batch->events.size());
    CHECK(EncodeEventBatch(*again, shape) == once);
  }
  CHECK(EventBatchJson(*batch).is_object());
  return 0;
}
