// Files: whole reads, whole atomic writes, and read-only mappings.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "divisi/core/result.h"

namespace divisi {

// The file's bytes.
// Errors: kNotFound; kOutOfRange when larger than max_bytes; kInternal for what the system reports.
Result<std::string> ReadFile(const std::filesystem::path& path, size_t max_bytes);

// Refuses what a rename over `path` would destroy: a device, a pipe, a directory, and a link,
// whatever it leads to (/dev/stdout may lead to a regular file). A regular file, or nothing,
// passes. Errors:  kInvalidArgument with the path and the remedy.
Result<void> CheckReplaceable(const std::filesystem::path& path);

// Writes a temporary file beside `path`, syncs it, and renames it over `path`: a reader sees the
// old content or the new, never a part. Errors: those of CheckReplaceable; kNotFound; kInternal.
Result<void> WriteFileAtomic(const std::filesystem::path& path, std::string_view content);

// A file mapped read-only for as long as this object lives. The bytes are the page cache's own:
// nothing is copied, and processes that map one file share it.
class MappedFile {
 public:
  static Result<MappedFile> Open(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Maps the pages of [offset, offset + length) now, so that the first pass does not fault. A hint:
  // where the system cannot, nothing happens.
  void Populate(size_t offset, size_t length) const;
  // Gives the mapping's pages back; a later read maps them again. A hint, too.
  void Release() const;

 private:
  MappedFile(const std::byte* data, size_t size) : data_(data), size_(size) {}
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace divisi
