#include "divisi/kv/disk_scan.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>

#include "divisi/core/clock.h"
#include "divisi/core/thread_pool.h"

namespace divisi {
namespace {

// Reading heads waits for the disk, hardly for the processor; a disk answers several at a time.
constexpr int kThreads = 8;
constexpr int64_t kBlock = 4096;

struct Seen {
  std::optional<StoredPage> page;
  int64_t bytes = 0;
  SkipReason reason = SkipReason::kUnreadable;
  std::string why;
};

// What one folder holds, until all are put together in order.
struct Part {
  DiskScan scan;
  std::array<std::string, kSkipReasons> examples;
};

Seen Skipped(SkipReason reason, std::string why, int64_t bytes) {
  return {std::nullopt, bytes, reason, std::move(why)};
}

// The head says `header`; whether it is a page of this store under its own name.
std::optional<Seen> Misfit(const PageHeader& header, const PageHeader& like, const BlockKey& key) {
  if (header.key != key) {
    return Skipped(SkipReason::kMisplaced, "it holds page " + header.key.Hex(), 0);
  }
  if (header.model != like.model) {
    return Skipped(SkipReason::kModel, "of model " + header.model.Hex(), 0);
  }
  if (header.shape != like.shape) return Skipped(SkipReason::kModel, "of another shape", 0);
  return std::nullopt;
}

Seen LookInto(DiskCalls& calls, int fd, const PageHeader& like, const BlockKey& key) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Skipped(SkipReason::kUnreadable, std::strerror(errno), 0);
  if (!S_ISREG(info.st_mode)) return Skipped(SkipReason::kForeign, "not a regular file", 0);
  const int64_t bytes = info.st_size;
  std::array<std::byte, kPageHeadBytes> bytes_of_head;
  const int64_t got = ReadFully(calls, fd, bytes_of_head, 0);
  if (got < 0) return Skipped(SkipReason::kUnreadable, std::strerror(errno), bytes);
  const auto head = ReadPageHead(std::span(bytes_of_head).first(static_cast<size_t>(got)));
  if (!head) {
    const SkipReason reason = head.error().code == Code::kUnimplemented ? SkipReason::kVersion
                              : got < kBlock                            ? SkipReason::kTruncated
                                                                        : SkipReason::kDamaged;
    return Skipped(reason, head.error().message, bytes);
  }
  const int64_t whole = static_cast<int64_t>(kPageHeadBytes) + head->header.shape.PayloadBytes();
  if (bytes != whole) {
    return Skipped(SkipReason::kTruncated, Format("{} bytes instead of {}", bytes, whole), bytes);
  }
  if (auto misfit = Misfit(head->header, like, key)) {
    misfit->bytes = bytes;
    return *misfit;
  }
  const double written =
      static_cast<double>(info.st_mtim.tv_sec) + 1e-9 * static_cast<double>(info.st_mtim.tv_nsec);
  return {StoredPage{head->header, written}, bytes, {}, {}};
}

class FolderScan {
 public:
  FolderScan(DiskFolder& folder, const PageHeader& like) : folder_(folder), like_(like) {}

  Part Look(const std::string& folder) {
    Part part;
    const auto names = NamesIn(folder_.fd(), folder);
    if (!names) {  // A file, say.
      ++part.scan.files;
      ++part.scan.skipped[static_cast<size_t>(SkipReason::kForeign)];
      part.examples[static_cast<size_t>(SkipReason::kForeign)] = names.error().message;
      return part;
    }
    for (const std::string& name : *names) {
      const std::string path = folder + "/" + name;
      ++part.scan.files;
      if (IsLeftover(name)) {
        part.scan.leftovers += folder_.calls().Unlink(folder_.fd(), path) == 0;
      } else {
        Take(part, name, path);
      }
    }
    return part;
  }

 private:
  void Take(Part& part, const std::string& name, const std::string& path) {
    const auto key = KeyOfName(name);
    Seen seen = !key || !path.starts_with("pages/" + name.substr(0, 2))
                    ? Skipped(SkipReason::kForeign, "its name is not a page's", 0)
                    : OpenAndLook(*key, path);
    if (seen.page) {
      part.scan.pages.push_back(std::move(*seen.page));
      return;
    }
    const auto reason = static_cast<size_t>(seen.reason);
    if (part.scan.skipped[reason]++ == 0) part.examples[reason] = path + ": " + seen.why;
    if (seen.reason != SkipReason::kForeign) {
      part.scan.worthless.push_back({*key, BytesOnDisk(seen.bytes)});
    }
  }

  Seen OpenAndLook(const BlockKey& key, const std::string& path) {
    // Neither follows a link nor waits for a pipe's writer.
    const int fd = folder_.calls().Open(folder_.fd(), path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ELOOP) return Skipped(SkipReason::kForeign, "a link", 0);
    if (fd < 0) return Skipped(SkipReason::kUnreadable, std::strerror(errno), 0);
    Seen seen = LookInto(folder_.calls(), fd, like_, key);
    (void)folder_.calls().Close(fd);
    return seen;
  }

  DiskFolder& folder_;
  const PageHeader& like_;
};

void Append(Part& all, Part part) {
  DiskScan& scan = all.scan;
  std::ranges::move(part.scan.pages, std::back_inserter(scan.pages));
  std::ranges::move(part.scan.worthless, std::back_inserter(scan.worthless));
  scan.files += part.scan.files;
  scan.leftovers += part.scan.leftovers;
  for (size_t i = 0; i < kSkipReasons; ++i) {
    if (scan.skipped[i] == 0) all.examples[i] = std::move(part.examples[i]);
    scan.skipped[i] += part.scan.skipped[i];
  }
}

void Report(const DiskFolder& folder, const Part& all, Logger& log) {
  const DiskScan& scan = all.scan;
  for (size_t i = 0; i < kSkipReasons; ++i) {
    if (scan.skipped[i] == 0) continue;
    log.Log(LogLevel::kWarning, "KV files skipped",
            {{"directory", folder.path().string()},
             {"reason", SkipReasonName(static_cast<SkipReason>(i))},
             {"files", scan.skipped[i]},
             {"first", all.examples[i]}});
  }
  log.Log(
      LogLevel::kInfo, "KV directory read",
      {{"directory", folder.path().string()},
       {"pages", static_cast<int64_t>(scan.pages.size())},
       {"files", scan.files},
       {"leftovers_removed", scan.leftovers},
       {"seconds", scan.took.value},
       {"files_per_second", static_cast<double>(scan.files) / std::max(1e-9, scan.took.value)}});
}

}  // namespace

const char* SkipReasonName(SkipReason reason) {
  constexpr std::array<const char*, kSkipReasons> kNames = {
      "foreign", "truncated", "damaged", "version", "model", "misplaced", "unreadable"};
  return kNames[static_cast<size_t>(reason)];
}

int64_t BytesOnDisk(int64_t file_bytes) { return (file_bytes + kBlock - 1) / kBlock * kBlock; }

DiskScan ScanDisk(DiskFolder& folder, const PageHeader& like, Logger& log) {
  const SteadyClock clock;
  const Seconds start = clock.Now();
  const auto folders = NamesIn(folder.fd(), "pages");
  if (!folders) return {};
  std::vector<Part> parts(folders->size());
  ThreadPool threads(kThreads);
  FolderScan scan(folder, like);
  threads.Run(static_cast<int64_t>(parts.size()), [&](int64_t i, int) {
    parts[static_cast<size_t>(i)] = scan.Look("pages/" + (*folders)[static_cast<size_t>(i)]);
  });
  Part all;
  for (Part& part : parts) Append(all, std::move(part));
  std::ranges::sort(all.scan.pages, {}, [](const StoredPage& page) {
    return std::tie(page.written_unix_seconds, page.header.position, page.header.key);
  });
  all.scan.took = clock.Now() - start;
  Report(folder, all, log);
  return std::move(all.scan);
}

}  // namespace divisi
