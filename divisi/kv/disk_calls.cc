#include "divisi/kv/disk_calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace divisi {
namespace {

template <typename Call>
auto Again(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace

int DiskCalls::Open(int directory, const std::string& path, int flags) {
  return Again([&] { return ::openat(directory, path.c_str(), flags | O_CLOEXEC, 0600); });
}

// Not made again: after EINTR the descriptor is gone all the same.
int DiskCalls::Close(int fd) { return ::close(fd); }

int64_t DiskCalls::Read(int fd, std::span<std::byte> to, int64_t at) {
  return Again([&] { return ::pread(fd, to.data(), to.size(), at); });
}

int64_t DiskCalls::Write(int fd, std::span<const std::byte> from, int64_t at) {
  return Again([&] { return ::pwrite(fd, from.data(), from.size(), at); });
}

int DiskCalls::Sync(int fd) {
  return Again([&] { return ::fsync(fd); });
}

int DiskCalls::Rename(int directory, const std::string& from, const std::string& to) {
  return Again([&] { return ::renameat(directory, from.c_str(), directory, to.c_str()); });
}

int DiskCalls::Unlink(int directory, const std::string& path) {
  return Again([&] { return ::unlinkat(directory, path.c_str(), 0); });
}

int DiskCalls::MakeDirectory(int directory, const std::string& path) {
  return Again([&] { return ::mkdirat(directory, path.c_str(), 0700); });
}

void DiskCalls::WillRead(int fd, int64_t at, int64_t bytes) {
  (void)::posix_fadvise(fd, at, bytes, POSIX_FADV_WILLNEED);
}

void DiskCalls::StartWriting(int fd) { (void)::sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE); }

int64_t ReadFully(DiskCalls& calls, int fd, std::span<std::byte> to, int64_t at) {
  int64_t done = 0;
  while (!to.empty()) {
    const int64_t got = calls.Read(fd, to, at + done);
    if (got < 0) return -1;
    if (got == 0) break;
    done += got;
    to = to.subspan(static_cast<size_t>(got));
  }
  return done;
}

bool WriteFully(DiskCalls& calls, int fd, std::span<const std::byte> from, int64_t at) {
  while (!from.empty()) {
    const int64_t put = calls.Write(fd, from, at);
    if (put < 0) return false;
    if (put == 0) {
      errno = EIO;  // A file system that takes nothing and says nothing: no endless loop.
      return false;
    }
    from = from.subspan(static_cast<size_t>(put));
    at += put;
  }
  return true;
}

Result<std::vector<std::string>> NamesIn(int directory, const std::string& path) {
  const int fd = ::openat(directory, path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* listing = fd < 0 ? nullptr : ::fdopendir(fd);
  if (listing == nullptr) {
    const int cause = errno;
    if (fd >= 0) ::close(fd);
    return Error{cause == ENOENT ? Code::kNotFound : Code::kUnavailable,
                 Format("cannot list {}: {}", path, std::strerror(cause))};
  }
  std::vector<std::string> names;
  for (const dirent* entry = ::readdir(listing); entry != nullptr; entry = ::readdir(listing)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  ::closedir(listing);
  std::ranges::sort(names);
  return names;
}

}  // namespace divisi
