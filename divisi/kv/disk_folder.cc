#include "divisi/kv/disk_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace divisi {
namespace {

constexpr std::string_view kEnding = ".kv";
constexpr size_t kDigits = 2 * sizeof(BlockKey);

std::optional<int> Digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return std::nullopt;
}

std::string HolderOf(int lock) {
  std::array<char, 16> text{};
  const ssize_t got = ::pread(lock, text.data(), text.size() - 1, 0);
  return got > 0 ? "process " + std::string(text.data(), static_cast<size_t>(got))
                 : "another process";
}

}  // namespace

std::string PagePath(const BlockKey& key) {
  const std::string hex = key.Hex();
  return Format("pages/{}/{}{}", hex.substr(0, 2), hex, kEnding);
}

std::optional<BlockKey> KeyOfName(const std::string& name) {
  if (name.size() != kDigits + kEnding.size() || !name.ends_with(kEnding)) return std::nullopt;
  BlockKey key;
  for (size_t i = 0; i < sizeof(BlockKey); ++i) {
    const auto high = Digit(name[2 * i]), low = Digit(name[2 * i + 1]);
    if (!high || !low) return std::nullopt;
    key.bytes[i] = static_cast<uint8_t>(16 * *high + *low);
  }
  return key;
}

bool IsLeftover(const std::string& name) { return name.ends_with(".tmp"); }

Result<std::unique_ptr<DiskFolder>> DiskFolder::Open(const std::filesystem::path& path,
                                                     DiskCalls& calls) {
  const auto wrong = [&](std::string_view what) {
    return Error{Code::kInvalidArgument,
                 Format("cannot {} {}: {}; name a directory that this user may write, in one that "
                        "is there",
                        what, path.string(), std::strerror(errno))};
  };
  if (calls.MakeDirectory(AT_FDCWD, path.string()) != 0 && errno != EEXIST) return wrong("make");
  const int fd = calls.Open(AT_FDCWD, path.string(), O_RDONLY | O_DIRECTORY);
  if (fd < 0) return wrong("open");
  std::unique_ptr<DiskFolder> folder(new DiskFolder(path, fd, calls));
  RETURN_IF_ERROR(folder->Lock());
  RETURN_IF_ERROR(folder->Prepare());
  return folder;
}

DiskFolder::~DiskFolder() {
  if (lock_ >= 0) ::close(lock_);
  ::close(fd_);
}

Result<void> DiskFolder::Lock() {
  lock_ = calls_.Open(fd_, "lock", O_RDWR | O_CREAT | O_NOFOLLOW);
  if (lock_ < 0) return Explain(errno, "make the file lock");
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return Explain(errno, "lock");
    return Error{Code::kUnavailable,
                 Format("{} has the KV directory {}; give each process a directory of its own, or "
                        "end that one",
                        HolderOf(lock_), path_.string())};
  }
  const std::string self = Format("{}", ::getpid());
  if (::ftruncate(lock_, 0) != 0 || !WriteFully(calls_, lock_, std::as_bytes(std::span(self)), 0)) {
    return Explain(errno, "write the file lock");
  }
  return {};
}

Result<void> DiskFolder::Prepare() {
  for (const char* name : {"pages", "quarantine"}) {
    if (calls_.MakeDirectory(fd_, name) != 0 && errno != EEXIST) {
      return Explain(errno, Format("make the folder {}", name));
    }
  }
  ASSIGN_OR_RETURN(const auto names, NamesIn(fd_, "quarantine"));
  for (const std::string& name : names) {
    if (!KeyOfName(name)) continue;
    if (quarantine_.size() < kMostQuarantined) {
      quarantine_.push_back(name);
    } else {
      (void)calls_.Unlink(fd_, "quarantine/" + name);
    }
  }
  quarantined_ = static_cast<int64_t>(quarantine_.size());
  return {};
}

bool DiskFolder::MakeFolderOf(const BlockKey& key) {
  const std::string path = PagePath(key);
  return calls_.MakeDirectory(fd_, path.substr(0, path.rfind('/'))) == 0 || errno == EEXIST;
}

void DiskFolder::Quarantine(const BlockKey& key) {
  const std::string path = PagePath(key);
  const std::string name = path.substr(path.rfind('/') + 1);
  const std::lock_guard lock(mutex_);
  if (calls_.Rename(fd_, path, "quarantine/" + name) != 0) {
    (void)calls_.Unlink(fd_, path);
    return;
  }
  std::erase(quarantine_, name);
  quarantine_.push_back(name);
  while (quarantine_.size() > kMostQuarantined) {
    (void)calls_.Unlink(fd_, "quarantine/" + quarantine_.front());
    quarantine_.pop_front();
  }
  quarantined_ = static_cast<int64_t>(quarantine_.size());
}

Error DiskFolder::Explain(int cause, const std::string& what) const {
  const auto error = [&](Code code, std::string_view remedy) {
    return Error{code, Format("KV directory {}: cannot {}: {}{}{}", path_.string(), what,
                              std::strerror(cause), remedy.empty() ? "" : "; ", remedy)};
  };
  switch (cause) {
    case ENOSPC:
    case EDQUOT:
      return error(Code::kResourceExhausted, "free space there, or lower the tier's budget");
    case EMFILE:
    case ENFILE:
      return error(Code::kResourceExhausted, "raise the limit of open files (ulimit -n)");
    case ENOMEM:
      return error(Code::kResourceExhausted, "");
    case EROFS:
    case EACCES:
    case EPERM:
      return error(Code::kUnavailable, "make it writable for this user, or name another one");
    case ENOENT:
    case ESTALE:
      return error(Code::kUnavailable,
                   "it was removed under this process: restart to make it anew");
    case EIO:
      return error(Code::kUnavailable, "the disk fails: see the kernel's log, and replace it");
    default:
      return error(Code::kUnavailable, "");
  }
}

}  // namespace divisi
