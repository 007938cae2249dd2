// Writing a file too large to hold in memory, piece by piece.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "divisi/core/result.h"

namespace divisi {

// Appends to a temporary file beside `path`; Commit renames it over `path`, so that a reader sees
// the old content or all of the new. Destroyed before Commit, it leaves nothing behind. Not synced:
// what a crash of the machine may lose can be written again.
class FileWriter {
 public:
  // Errors of all: kNotFound for a missing directory; kInternal for what the system reports (a full
  // disk, say), with the path. Of Create also those of CheckReplaceable.
  static Result<FileWriter> Create(const std::filesystem::path& path);
  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&& other) = delete;
  ~FileWriter();

  Result<void> Append(std::span<const std::byte> bytes);
  // Requires: not called before.
  Result<void> Commit();

 private:
  FileWriter(int fd, std::filesystem::path path, std::filesystem::path temporary)
      : fd_(fd), path_(std::move(path)), temporary_(std::move(temporary)) {}
  Error SystemError(std::string_view what) const;

  int fd_;  // -1 after Commit or a move.
  std::filesystem::path path_;
  std::filesystem::path temporary_;
};

}  // namespace divisi
