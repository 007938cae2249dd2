// The system calls of a disk tier: a seam, so that tests can fail the i-th of them. Each does what
// the call of its name does, returns what it returns and leaves errno; paths are relative to an
// open directory. Interrupted calls are made again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "divisi/core/result.h"

namespace divisi {

class DiskCalls {
 public:
  virtual ~DiskCalls() = default;
  virtual int Open(int directory, const std::string& path, int flags);  // Mode 0600; close-on-exec.
  virtual int Close(int fd);
  virtual int64_t Read(int fd, std::span<std::byte> to, int64_t at);
  virtual int64_t Write(int fd, std::span<const std::byte> from, int64_t at);
  virtual int Sync(int fd);
  virtual int Rename(int directory, const std::string& from, const std::string& to);
  virtual int Unlink(int directory, const std::string& path);
  virtual int MakeDirectory(int directory, const std::string& path);  // Mode 0700.

  // Hints, which can't fail.
  void WillRead(int fd, int64_t at, int64_t bytes);  // Starts reading, and doesn't wait.
  void StartWriting(int fd);                         // What was written goes to the disk from now.
};

// The whole of `to`; fewer bytes only at the end of the file, -1 and errno for an error.
int64_t ReadFully(DiskCalls& calls, int fd, std::span<std::byte> to, int64_t at);
// False and errno when not all could be written.
bool WriteFully(DiskCalls& calls, int fd, std::span<const std::byte> from, int64_t at);

// The names in a folder, without "." and "..", in order.  Errors: kNotFound; kUnavailable.
Result<std::vector<std::string>> NamesIn(int directory, const std::string& path);

}  // namespace divisi
