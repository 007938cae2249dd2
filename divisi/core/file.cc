#include "divisi/core/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace divisi {
namespace {

// Closes its descriptor when it goes out of scope.
struct Descriptor {
  int fd = -1;
  explicit Descriptor(int f) : fd(f) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

Error SystemError(std::string_view what, const std::filesystem::path& path) {
  const int cause = errno;
  return {cause == ENOENT ? Code::kNotFound : Code::kInternal,
          Format("cannot {} {}: {}", what, path.string(), std::strerror(cause))};
}

// Size of an open regular file.
Result<size_t> RegularSize(int fd, const std::filesystem::path& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return SystemError("stat", path);
  if (!S_ISREG(info.st_mode)) {
    return Error{Code::kInvalidArgument, Format("{} is not a regular file", path.string())};
  }
  return static_cast<size_t>(info.st_size);
}

Result<void> WriteAll(int fd, std::string_view content, const std::filesystem::path& path) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return SystemError("write", path);
    }
    content.remove_prefix(static_cast<size_t>(written));
  }
  if (::fsync(fd) != 0) return SystemError("sync", path);
  return {};
}

}  // namespace

Result<std::string> ReadFile(const std::filesystem::path& path, size_t max_bytes) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) return SystemError("open", path);
  ASSIGN_OR_RETURN(const size_t size, RegularSize(file.fd, path));
  if (size > max_bytes) {
    return Error{Code::kOutOfRange, Format("{} has {} bytes, more than the limit of {}",
                                           path.string(), size, max_bytes)};
  }
  std::string content(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(file.fd, content.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return SystemError("read", path);
    if (got == 0) break;  // Shortened while we read: what is there is what we return.
    done += static_cast<size_t>(got);
  }
  content.resize(done);
  return content;
}

Result<void> CheckReplaceable(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(path, error);
  if (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status)) return {};
  return Error{
      Code::kInvalidArgument,
      Format("cannot write {}: a link, device or directory is there; name a file", path.string())};
}

Result<void> WriteFileAtomic(const std::filesystem::path& path, std::string_view content) {
  RETURN_IF_ERROR(CheckReplaceable(path));
  const std::filesystem::path temporary = path.string() + Format(".tmp{}", ::getpid());
  {
    const Descriptor file(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.fd < 0) return SystemError("create", temporary);
    if (auto written = WriteAll(file.fd, content, temporary); !written) {
      ::unlink(temporary.c_str());
      return written;
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const Error error = SystemError("rename to", path);
    ::unlink(temporary.c_str());
    return error;
  }
  return {};
}

Result<MappedFile> MappedFile::Open(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) return SystemError("open", path);
  ASSIGN_OR_RETURN(const size_t size, RegularSize(file.fd, path));
  if (size == 0) return MappedFile(nullptr, 0);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd, 0);
  if (data == MAP_FAILED) return SystemError("map", path);
  return MappedFile(static_cast<const std::byte*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::Populate(size_t offset, size_t length) const {
  CHECK(offset <= size_ && length <= size_ - offset);
  if (length == 0) return;
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t start = offset / page * page;
  constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ, Linux 5.14; older kernels say EINVAL.
  ::madvise(const_cast<std::byte*>(data_) + start, offset + length - start, kPopulateRead);
}

void MappedFile::Release() const {
  if (size_ > 0) (void)::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
}

}  // namespace divisi
