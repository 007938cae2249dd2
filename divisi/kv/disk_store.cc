#include "divisi/kv/disk_store.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace divisi {
namespace {

// Layers are summed, then written, in runs of about this many bytes: what was summed is still in
// the cache, and a call costs little beside its bytes.
constexpr int64_t kRun = int64_t{256} << 10;

int MostOpen(int asked) {
  if (asked > 0) return asked;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 16;
  return static_cast<int>(std::clamp<rlim_t>(limit.rlim_cur / 4, 16, 4096));
}

DiskStoreOptions Completed(DiskStoreOptions options) {
  options.most_open = MostOpen(options.most_open);
  return options;
}

int64_t FileBytes(const PageShape& shape) {
  return static_cast<int64_t>(kPageHeadBytes) + shape.PayloadBytes();
}

// Of this process or machine: it says nothing about the page.
bool IsShortage(int cause) { return cause == EMFILE || cause == ENFILE || cause == ENOMEM; }

std::string Named(const BlockKey& key) { return "page " + key.Hex(); }

}  // namespace

// Holds one reader's reference to a page.
class DiskReader final : public PageReader {
 public:
  DiskReader(DiskStore& store, const BlockKey& key) : store_(store), key_(key) {}
  DiskReader(const DiskReader&) = delete;
  DiskReader& operator=(const DiskReader&) = delete;
  ~DiskReader() override {
    if (fd_ >= 0) (void)store_.calls_.Close(fd_);
    store_.EndReading(key_, fd_ >= 0);
  }

  const PageHeader& header() const override { return head_.header; }

  Result<void> ReadHead() {
    std::vector<std::byte> bytes(kPageHeadBytes);
    RETURN_IF_ERROR(Read(bytes, 0));
    auto head = ReadPageHead(bytes);
    if (!head) return store_.Fail(key_, 0, head.error().message);
    PageHeader asked = head->header;
    asked.key = key_;
    asked.model = store_.like_.model;
    asked.shape = store_.like_.shape;
    if (auto is = CheckIsAsked(head->header, asked); !is) {
      return store_.Fail(key_, 0, is.error().message);
    }
    head_ = std::move(*head);
    return {};
  }

  Result<void> ReadLayers(int first, int count, std::span<std::byte> to) override {
    const PageShape& shape = head_.header.shape;
    CHECK(first >= 0 && count >= 0 && first + count <= shape.layers &&
          to.size() == static_cast<size_t>(count * shape.layer_bytes));
    RETURN_IF_ERROR(Read(to, At(first)));
    if (auto good = CheckPageLayers(head_, first, to); !good) {
      return store_.Fail(key_, 0, good.error().message);
    }
    return {};
  }

  bool WillRead(int first, int count) override {
    const auto fd = Acquire();
    if (!fd) return true;
    store_.calls_.WillRead(*fd, At(first), count * head_.header.shape.layer_bytes);
    LetGo(*fd);
    return true;
  }

 private:
  int64_t At(int layer) const {
    return static_cast<int64_t>(kPageHeadBytes) + layer * head_.header.shape.layer_bytes;
  }

  Result<int> Acquire() {
    if (fd_ >= 0) return fd_;
    ASSIGN_OR_RETURN(const int fd, store_.OpenFile(key_));
    if (store_.KeepOpen()) fd_ = fd;
    return fd;
  }
  void LetGo(int fd) {
    if (fd != fd_) (void)store_.calls_.Close(fd);
  }

  Result<void> Read(std::span<std::byte> to, int64_t at) {
    ASSIGN_OR_RETURN(const int fd, Acquire());
    const int64_t got = ReadFully(store_.calls_, fd, to, at);
    const int cause = errno;
    LetGo(fd);
    if (got < 0 && IsShortage(cause)) return store_.folder_->Explain(cause, "read " + Named(key_));
    if (got < 0) return store_.Fail(key_, cause, std::strerror(cause));
    if (got < static_cast<int64_t>(to.size())) {
      return store_.Fail(key_, 0, Format("truncated: it ends at {}", at + got));
    }
    return {};
  }

  DiskStore& store_;
  const BlockKey key_;
  int fd_ = -1;  // Kept open between reads; -1: opened for each.
  PageHead head_;
};

Result<std::unique_ptr<DiskStore>> DiskStore::Open(const DiskStoreOptions& options,
                                                   DiskCalls& calls, Logger& log) {
  RETURN_IF_ERROR(CheckEncodable({.shape = options.shape}));
  ASSIGN_OR_RETURN(auto folder, DiskFolder::Open(options.directory, calls));
  std::unique_ptr<DiskStore> store(new DiskStore(Completed(options), std::move(folder)));
  store->TakeOver(ScanDisk(*store->folder_, store->like_, log));
  return store;
}

DiskStore::DiskStore(const DiskStoreOptions& options, std::unique_ptr<DiskFolder> folder)
    : options_(options),
      like_{.shape = options.shape, .model = options.model},
      page_bytes_(BytesOnDisk(FileBytes(options.shape))),
      folder_(std::move(folder)),
      calls_(folder_->calls()) {
  stats_.budget = options.budget;
}

DiskStore::~DiskStore() {
  for (const auto& [key, entry] : entries_)
    CHECK(entry.readers == 0, "a reader outlives its store");
}

void DiskStore::TakeOver(DiskScan scan) {
  const int64_t room = std::max<int64_t>(0, options_.budget.value / page_bytes_);
  const int64_t over = std::max<int64_t>(0, static_cast<int64_t>(scan.pages.size()) - room);
  for (int64_t i = 0; i < over; ++i) {
    const auto& page = scan.pages[static_cast<size_t>(i)];
    (void)calls_.Unlink(folder_->fd(), PagePath(page.header.key));
  }
  scan.pages.erase(scan.pages.begin(), scan.pages.begin() + over);
  {
    const std::lock_guard lock(mutex_);
    for (const StoredPage& page : scan.pages) entries_.try_emplace(page.header.key);
    worthless_ = std::move(scan.worthless);
    for (const auto& file : worthless_) stats_.worthless += Bytes(file.bytes);
    stats_.pages = static_cast<int64_t>(entries_.size());
    stats_.bytes = Bytes(stats_.pages * page_bytes_) + stats_.worthless;
  }
  MakeRoom(0);
  scan_ = std::move(scan);
}

Result<std::unique_ptr<PageReader>> DiskStore::Open(const BlockKey& key) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end() || found->second.removed) {
      return Error{Code::kNotFound,
                   Format("KV directory {}: no {}", folder_->path().string(), Named(key))};
    }
    ++found->second.readers;
  }
  auto reader = std::make_unique<DiskReader>(*this, key);
  RETURN_IF_ERROR(reader->ReadHead());
  return std::unique_ptr<PageReader>(std::move(reader));
}

Result<void> DiskStore::Put(const PageHeader& header, std::span<const std::byte> payload) {
  CHECK(payload.size() == static_cast<size_t>(header.shape.PayloadBytes()));
  if (header.shape != like_.shape || header.model != like_.model) {
    return Error{Code::kInvalidArgument, Format("KV directory {}: {} is of another model or shape",
                                                folder_->path().string(), Named(header.key))};
  }
  if (auto encodable = CheckEncodable(header); !encodable) return encodable;
  ASSIGN_OR_RETURN(const bool there, Reserve(header.key));
  if (there) return {};
  auto written = WriteFile(header, payload);
  EndPut(header.key, written.ok());
  return written;
}

void DiskStore::MakeRoom(int64_t bytes) {
  for (;;) {
    BlockKey key;
    {
      const std::lock_guard lock(mutex_);
      if (worthless_.empty() || stats_.bytes.value + bytes <= stats_.budget.value) return;
      key = worthless_.back().key;
      stats_.bytes -= Bytes(worthless_.back().bytes);
      stats_.worthless -= Bytes(worthless_.back().bytes);
      worthless_.pop_back();
      if (entries_.contains(key)) continue;  // A page has replaced it.
    }
    (void)calls_.Unlink(folder_->fd(), PagePath(key));
  }
}

Result<bool> DiskStore::Reserve(const BlockKey& key) {
  MakeRoom(page_bytes_);
  const std::lock_guard lock(mutex_);
  const bool room = stats_.bytes.value + page_bytes_ <= stats_.budget.value;
  const auto found = entries_.find(key);
  if (found != entries_.end() && found->second.busy) {
    return Error{Code::kUnavailable,
                 Format("KV directory {}: {} is being written or removed; put it later",
                        folder_->path().string(), Named(key))};
  }
  if (found != entries_.end() && !found->second.gone) {
    stats_.pages += found->second.removed;
    found->second.removed = false;  // Its file is still there, for its readers.
    return true;
  }
  if (found == entries_.end() && !room) {
    ++stats_.puts_refused;
    return Error{
        Code::kResourceExhausted,
        Format("KV directory {}: {} of its budget of {} are taken", folder_->path().string(),
               HumanBytes(stats_.bytes), HumanBytes(stats_.budget))};
  }
  // One that readers of an earlier file hold has its bytes already.
  if (found == entries_.end()) stats_.bytes += Bytes(page_bytes_);
  Entry& entry = entries_[key];
  entry.removed = entry.gone = entry.busy = true;
  return false;
}

void DiskStore::EndPut(const BlockKey& key, bool written) {
  const std::lock_guard lock(mutex_);
  ++(written ? stats_.puts : stats_.puts_failed);
  Entry& entry = entries_.at(key);
  entry.busy = false;
  if (written) {
    entry.removed = entry.gone = false;
    ++stats_.pages;
  } else if (entry.readers == 0) {
    entries_.erase(key);
    stats_.bytes -= Bytes(page_bytes_);
  }
}

int DiskStore::CreateFile(const BlockKey& key, const std::string& path) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW;
  const int fd = calls_.Open(folder_->fd(), path, kFlags);
  if (fd >= 0 || errno != ENOENT || !folder_->MakeFolderOf(key)) return fd;
  return calls_.Open(folder_->fd(), path, kFlags);
}

Result<void> DiskStore::WriteFile(const PageHeader& header, std::span<const std::byte> payload) {
  const std::string path = PagePath(header.key);
  const std::string temporary = path.substr(0, path.rfind('.')) + ".tmp";
  const int fd = CreateFile(header.key, temporary);
  if (fd < 0) return folder_->Explain(errno, "create " + temporary);
  auto written = WriteContent(fd, header, payload);
  // Some file systems say only now that there was no room.
  if (calls_.Close(fd) != 0 && written.ok())
    written = folder_->Explain(errno, "close " + temporary);
  if (written.ok() && calls_.Rename(folder_->fd(), temporary, path) != 0) {
    written = folder_->Explain(errno, "rename " + temporary);
  }
  if (!written) (void)calls_.Unlink(folder_->fd(), temporary);
  return written;
}

Result<void> DiskStore::WriteContent(int fd, const PageHeader& header,
                                     std::span<const std::byte> payload) {
  const auto failed = [&] { return folder_->Explain(errno, "write " + Named(header.key)); };
  const PageShape& shape = header.shape;
  PageHead head{header, {}};
  const auto layer = static_cast<size_t>(shape.layer_bytes);
  const size_t run = layer * static_cast<size_t>(std::max<int64_t>(1, kRun / shape.layer_bytes));
  for (size_t at = 0; at < payload.size(); at += run) {
    const auto bytes = payload.subspan(at, std::min(run, payload.size() - at));
    for (size_t i = 0; i < bytes.size(); i += layer) {
      head.sums.push_back(PageSum(bytes.subspan(i, layer)));
    }
    if (!WriteFully(calls_, fd, bytes, static_cast<int64_t>(kPageHeadBytes + at))) return failed();
  }
  if (!WriteFully(calls_, fd, EncodePageHead(head), 0)) return failed();
  if (options_.sync) {
    if (calls_.Sync(fd) != 0) return failed();
  } else {
    calls_.StartWriting(fd);
  }
  return {};
}

void DiskStore::Remove(const BlockKey& key) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end() || found->second.removed) return;
    Hide(found->second);
    if (found->second.readers > 0) return;
    found->second.busy = true;
  }
  DropFile(key);
}

void DiskStore::Hide(Entry& entry) {
  stats_.pages -= !entry.removed;
  entry.removed = true;
}

void DiskStore::DropFile(const BlockKey& key) {
  const bool removed = calls_.Unlink(folder_->fd(), PagePath(key)) == 0 || errno == ENOENT;
  const std::lock_guard lock(mutex_);
  stats_.not_removed += !removed;
  stats_.bytes -= Bytes(page_bytes_);
  entries_.erase(key);
}

bool DiskStore::WillOpen(const BlockKey& key, PageUse) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end() || found->second.removed) return true;
  }
  const int fd = calls_.Open(folder_->fd(), PagePath(key), O_RDONLY | O_NOFOLLOW);
  if (fd < 0) return true;
  calls_.WillRead(fd, 0, static_cast<int64_t>(kPageHeadBytes));
  (void)calls_.Close(fd);
  return true;
}

Result<int> DiskStore::OpenFile(const BlockKey& key) {
  const int fd = calls_.Open(folder_->fd(), PagePath(key), O_RDONLY | O_NOFOLLOW);
  if (fd >= 0) return fd;
  const int cause = errno;
  if (IsShortage(cause)) return folder_->Explain(cause, "open " + Named(key));
  return Fail(key, cause, std::strerror(cause));
}

bool DiskStore::KeepOpen() {
  const std::lock_guard lock(mutex_);
  if (stats_.open_files >= options_.most_open) return false;
  ++stats_.open_files;
  return true;
}

void DiskStore::EndReading(const BlockKey& key, bool kept_open) {
  {
    const std::lock_guard lock(mutex_);
    stats_.open_files -= kept_open;
    Entry& entry = entries_.at(key);
    if (--entry.readers > 0 || !entry.removed || entry.busy) return;
    if (entry.gone) {
      stats_.bytes -= Bytes(page_bytes_);
      entries_.erase(key);
      return;
    }
    entry.busy = true;
  }
  DropFile(key);
}

Error DiskStore::Fail(const BlockKey& key, int cause, const std::string& why) {
  const bool vanished = cause == ENOENT || cause == ESTALE;
  const Error error{cause == 0 ? Code::kDataLoss
                    : vanished ? Code::kNotFound
                               : Code::kUnavailable,
                    Format("KV directory {}: {}: {}", folder_->path().string(), Named(key), why)};
  {
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_.at(key);
    if (entry.gone || entry.busy) return error;  // Another reader saw it first.
    ++(cause == 0 ? stats_.damaged : vanished ? stats_.vanished : stats_.unreadable);
    Hide(entry);
    entry.gone = true;
    if (vanished) return error;
    entry.busy = true;
  }
  folder_->Quarantine(key);
  const std::lock_guard lock(mutex_);
  entries_.at(key).busy = false;
  return error;
}

DiskStoreStats DiskStore::stats() const {
  const std::lock_guard lock(mutex_);
  DiskStoreStats stats = stats_;
  stats.quarantined = folder_->quarantined();
  return stats;
}

}  // namespace divisi
