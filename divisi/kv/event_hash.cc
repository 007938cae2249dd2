#include "divisi/kv/event_hash.h"

#include "divisi/core/format.h"
#include "divisi/kv/sha256.h"

namespace divisi {

std::string EventHash::Text() const {
  if (negative_) return Format("{}", static_cast<int64_t>(number_));
  if (!is_bytes_) return Format("{}", number_);
  return Hex({reinterpret_cast<const uint8_t*>(bytes_.data()), bytes_.size()});
}

}  // namespace divisi
