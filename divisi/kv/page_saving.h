// One page to another tier: from the device's memory, or read from the tier that has it.
#pragma once

#include <vector>

#include "divisi/kv/tier_io.h"

namespace divisi {

class PageSaving {
 public:
  // All outlive it; `buffer` is kept from one to the next.
  PageSaving(const PageSave& save, const TierIoOptions& options, std::vector<std::byte>& buffer)
      : save_(save), options_(options), buffer_(buffer) {}

  // The payload is read only while `landing` isn't given up.
  SaveDone Run(Landing& landing);
  Bytes bytes() const { return Bytes(options_.terms.shape.PayloadBytes()); }
  Seconds reading() const { return reading_; }  // 0 where it wasn't read, or not all.
  Seconds writing() const { return writing_; }  // 0 where it wasn't written.

 private:
  Result<void> FromDevice(Landing& landing, PageStore& to);
  Result<void> FromTier(PageStore& to);
  Result<PageHeader> ReadSource();

  const PageSave& save_;
  const TierIoOptions& options_;
  std::vector<std::byte>& buffer_;
  bool source_bad_ = false;
  Seconds reading_, writing_;
};

}  // namespace divisi
