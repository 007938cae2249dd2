// One page to another tier: from the device's memory, or read from the tier that has it.
#pragma once

#include <vector>

#include "divisi/kv/tier_io.h"

namespace divisi {

class PageSaving {
 public:
  // All outlive it; `buffer` is kept from one to the next.
  // later: called with the put's end, which Run then does not wait for; none: it does.
  PageSaving(const PageSave& save, const TierIoOptions& options, std::vector<std::byte>& buffer,
             PageStore::PutDone later)
      : save_(save), options_(options), buffer_(buffer), later_(std::move(later)) {}

  // The payload is read only while `landing` isn't given up.
  SaveDone Run(Landing& landing);
  // The put was begun: Run's result says nothing, `later` tells its end.
  bool begun() const { return begun_; }
  Bytes bytes() const { return Bytes(options_.terms.shape.PayloadBytes()); }
  Seconds reading() const { return reading_; }  // 0 where it wasn't read, or not all.
  Seconds writing() const { return writing_; }  // 0 where it wasn't written.

 private:
  Result<void> FromDevice(Landing& landing, PageStore& to);
  Result<void> FromTier(PageStore& to);
  Result<PageHeader> ReadSource();
  Result<void> Put(PageStore& to, const PageHeader& header, std::span<const std::byte> payload);

  const PageSave& save_;
  const TierIoOptions& options_;
  std::vector<std::byte>& buffer_;
  const PageStore::PutDone later_;
  bool begun_ = false;
  bool source_bad_ = false;
  Seconds reading_, writing_;
};

}  // namespace divisi
