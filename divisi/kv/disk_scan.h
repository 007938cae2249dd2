// What lies in a disk tier's directory at the start. The files themselves are the index: nothing
// else has to be kept in step with them. Only heads are read.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "divisi/core/log.h"
#include "divisi/core/units.h"
#include "divisi/kv/disk_folder.h"
#include "divisi/kv/page_object.h"

namespace divisi {

// Why a file is not taken for a page.
enum class SkipReason {
  kForeign,     // Its name is none of ours: never touched, and not counted into the budget.
  kTruncated,   // Shorter or longer than its head says, or shorter than a head.
  kDamaged,     // The head contradicts itself, or there is none: torn by a crash, say.
  kVersion,     // Of another version of the format.
  kModel,       // Of another model, or another shape.
  kMisplaced,   // Another page than its name says.
  kUnreadable,  // The system says no.
};
inline constexpr size_t kSkipReasons = 7;
const char* SkipReasonName(SkipReason reason);  // "truncated"

struct StoredPage {
  PageHeader header;
  double written_unix_seconds = 0;
};

struct DiskScan {
  std::vector<StoredPage> pages;  // The longest written first.
  std::array<int64_t, kSkipReasons> skipped{};
  // The skipped ones that have a page's name: they take their place until it is needed.
  struct Worthless {
    BlockKey key;
    int64_t bytes = 0;
  };
  std::vector<Worthless> worthless;
  int64_t files = 0;      // Looked at.
  int64_t leftovers = 0;  // Of writers that died: removed.
  Seconds took;
};

// Reads every file's head, several folders at a time, and removes leftovers. Each reason is logged
// with its count and an example.
DiskScan ScanDisk(DiskFolder& folder, const PageHeader& like, Logger& log);

// Bytes that a file takes: whole blocks.
int64_t BytesOnDisk(int64_t file_bytes);

}  // namespace divisi
