#include <utility>

#include "divisi/core/check.h"
#include "divisi/core/utf8.h"
#include "divisi/model/tokenizer.h"

namespace divisi {

std::string StreamDecoder::Push(TokenId id) {
  if (skip_special_tokens_ && tokenizer_->IsSpecial(id)) return {};
  pending_ += tokenizer_->TokenBytes(id);
  std::string finished = TakeFinishedUtf8(pending_);
  CHECK(pending_.size() <= 3, "{} bytes are pending", pending_.size());
  return finished;
}

std::string StreamDecoder::Finish() { return RepairUtf8(std::exchange(pending_, {})); }

}  // namespace divisi
