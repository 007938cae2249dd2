// The directory of a disk tier: what lies where, whose it is, and what an error of it means.
//
//   DIR/lock                 locked by the one process that uses DIR, and holds its number
//   DIR/pages/ab/KEY.kv      a page object; ab: the first two of KEY's 64 hexadecimal digits
//   DIR/pages/ab/KEY.tmp     one being written, or left by a writer that died
//   DIR/quarantine/KEY.kv    the last few that failed
//
// All is reached through one descriptor of DIR: once DIR is removed every call fails, even where
// somebody makes another directory of its name, which another process may lock.
#pragma once

#include <atomic>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "divisi/kv/block_key.h"
#include "divisi/kv/disk_calls.h"

namespace divisi {

// "pages/ab/KEY.kv".
std::string PagePath(const BlockKey& key);
// The key in a file's name ("KEY.kv"); nothing for another name.
std::optional<BlockKey> KeyOfName(const std::string& name);
bool IsLeftover(const std::string& name);  // "....tmp"

class DiskFolder {
 public:
  // How many failed files are kept for whoever looks for the cause.
  static constexpr size_t kMostQuarantined = 8;

  // Makes the directory where it is missing (not its parents), and locks it.
  // Errors: kInvalidArgument where it can't be made or used, kUnavailable where another process has
  // it; with the remedy.
  static Result<std::unique_ptr<DiskFolder>> Open(const std::filesystem::path& path,
                                                  DiskCalls& calls);
  ~DiskFolder();
  DiskFolder(const DiskFolder&) = delete;
  DiskFolder& operator=(const DiskFolder&) = delete;

  int fd() const { return fd_; }
  DiskCalls& calls() const { return calls_; }
  const std::filesystem::path& path() const { return path_; }

  // Makes the missing folder of a page. False and errno.
  bool MakeFolderOf(const BlockKey& key);
  // Puts a page's file aside, and removes the oldest beyond kMostQuarantined. Where it can't be
  // moved it is removed. Safe from any thread.
  void Quarantine(const BlockKey& key);
  int64_t quarantined() const { return quarantined_; }  // Files there.

  // What a failed call means for who runs this: kResourceExhausted for a full disk, else
  // kUnavailable; with the remedy. cause: errno.
  Error Explain(int cause, const std::string& what) const;

 private:
  DiskFolder(std::filesystem::path path, int fd, DiskCalls& calls)
      : path_(std::move(path)), fd_(fd), calls_(calls) {}
  Result<void> Lock();
  Result<void> Prepare();

  const std::filesystem::path path_;
  const int fd_;
  int lock_ = -1;
  DiskCalls& calls_;
  std::mutex mutex_;                    // Held over calls of the system.
  std::deque<std::string> quarantine_;  // Oldest first. Guarded by mutex_.
  std::atomic<int64_t> quarantined_ = 0;
};

}  // namespace divisi
