// The disk tier: one file for each page in a directory with a budget of bytes (disk_folder.h). The
// files are the index: at the start their heads are read, and what is no whole page of this model
// is skipped with a reason. In memory each page costs its key and a few numbers.
//
// A file is written under a temporary name, its head last, and renamed: whole or not there. It is
// not synced unless asked for: what a crash of the machine tears fails its sums and is computed
// again. Writing to the disk is started at once, so that dirty memory doesn't gather.
//
// What goes wrong costs a page, never the store: a failed Put leaves nothing, a page that fails its
// check or whose reading fails is moved to the quarantine and not found again, one that went away
// is forgotten.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "divisi/core/log.h"
#include "divisi/core/units.h"
#include "divisi/kv/disk_folder.h"
#include "divisi/kv/disk_scan.h"
#include "divisi/kv/page_store.h"

namespace divisi {

struct DiskStoreOptions {
  std::filesystem::path directory;
  Bytes budget;  // Of files' blocks; beside it are folders and kMostQuarantined failed pages.
  PageShape shape;
  BlockKey model;
  // Each page is on the disk before Put returns. Not needed for correctness.
  bool sync = false;
  // Files that readers keep open between reads; those beyond it are opened for each read. 0: a
  // quarter of what the system lets this process open.
  int most_open = 0;
};

struct DiskStoreStats {
  Bytes budget;
  Bytes bytes;      // In files, of pages and of `worthless` ones.
  Bytes worthless;  // Skipped at the start: removed when their place is needed.
  int64_t pages = 0;
  int64_t open_files = 0;
  int64_t quarantined = 0;  // Files there.
  // Since the start.
  int64_t puts = 0;          // That wrote.
  int64_t puts_failed = 0;   // By the system.
  int64_t puts_refused = 0;  // Over the budget.
  int64_t damaged = 0;       // Pages that failed a check.
  int64_t unreadable = 0;    // Pages whose reading failed.
  int64_t vanished = 0;      // Files that somebody else removed.
  int64_t not_removed = 0;   // Files that the system did not let us remove.
};

class DiskStore final : public PageStore {
 public:
  // Reads the directory; pages beyond the budget are removed, the longest written first. `calls`
  // and `log` outlive the store.  Errors: those of DiskFolder::Open; kInvalidArgument for a shape
  // that no page has.
  static Result<std::unique_ptr<DiskStore>> Open(const DiskStoreOptions& options, DiskCalls& calls,
                                                 Logger& log);
  // Requires: no reader lives.
  ~DiskStore() override;

  // What was there at the start, the longest written first; once.
  DiskScan TakeScan() { return std::move(scan_); }

  Result<std::unique_ptr<PageReader>> Open(const BlockKey& key) override;
  Result<void> Put(const PageHeader& header, std::span<const std::byte> payload) override;
  void Remove(const BlockKey& key) override;
  bool WillOpen(const BlockKey& key, PageUse use) override;

  // What one page takes of the budget.
  Bytes PageBytes() const { return Bytes(page_bytes_); }
  DiskStoreStats stats() const;

 private:
  friend class DiskReader;
  struct Entry {
    int64_t readers = 0;
    bool removed = false;  // Not found; its file goes with the last reader.
    bool gone = false;     // Its file is no longer there, or no longer this page's.
    bool busy = false;     // Somebody writes, removes or moves the file, without the lock.
  };

  DiskStore(const DiskStoreOptions& options, std::unique_ptr<DiskFolder> folder);
  void TakeOver(DiskScan scan);
  // Removes worthless files until `bytes` more fit into the budget, or none is left.
  void MakeRoom(int64_t bytes);
  // Sets a page's bytes aside and makes its entry busy. True: nothing is to be done, it is there.
  // Errors: kResourceExhausted over the budget, kUnavailable while the page is being written or its
  // old file removed.
  Result<bool> Reserve(const BlockKey& key);
  void EndPut(const BlockKey& key, bool written);
  // Writes and names the file; all but the index. Errors as Put's.
  Result<void> WriteFile(const PageHeader& header, std::span<const std::byte> payload);
  Result<void> WriteContent(int fd, const PageHeader& header, std::span<const std::byte> payload);
  int CreateFile(const BlockKey& key, const std::string& path);

  // For a reader. `fd` -1: opened anew.
  Result<int> OpenFile(const BlockKey& key);
  bool KeepOpen();  // Whether the file may stay open.
  void EndReading(const BlockKey& key, bool kept_open);
  // Takes a page that its caller reads out of the index. cause: errno, 0 for damaged bytes.
  Error Fail(const BlockKey& key, int cause, const std::string& why);
  void Hide(Entry& entry);             // Requires the lock.
  void DropFile(const BlockKey& key);  // Requires: this call made the entry busy.

  const DiskStoreOptions options_;
  const PageHeader like_;  // Model and shape of all pages.
  const int64_t page_bytes_;
  const std::unique_ptr<DiskFolder> folder_;
  DiskCalls& calls_;
  DiskScan scan_;

  mutable std::mutex mutex_;
  // Guarded by mutex_, which is never held over a call of the system: one that hangs stops nobody
  // else.
  std::unordered_map<BlockKey, Entry, BlockKeyHash> entries_;
  std::vector<DiskScan::Worthless> worthless_;
  DiskStoreStats stats_;
};

}  // namespace divisi
