#include "divisi/core/file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "divisi/core/file.h"

namespace divisi {

Result<FileWriter> FileWriter::Create(const std::filesystem::path& path) {
  RETURN_IF_ERROR(CheckReplaceable(path));
  const std::filesystem::path temporary = path.string() + Format(".tmp{}", ::getpid());
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  FileWriter writer(fd, path, temporary);
  if (fd < 0) return writer.SystemError("create");
  return writer;
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)) {}

FileWriter::~FileWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

Result<void> FileWriter::Append(std::span<const std::byte> bytes) {
  CHECK(fd_ >= 0);
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return SystemError("write");
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

Result<void> FileWriter::Commit() {
  CHECK(fd_ >= 0);
  // Some file systems report a failed write only here.
  if (::close(std::exchange(fd_, -1)) != 0) {
    const Error error = SystemError("close");
    ::unlink(temporary_.c_str());
    return error;
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const Error error = SystemError("rename to");
    ::unlink(temporary_.c_str());
    return error;
  }
  return {};
}

Error FileWriter::SystemError(std::string_view what) const {
  const int cause = errno;
  return {cause == ENOENT ? Code::kNotFound : Code::kInternal,
          Format("cannot {} {}: {}", what, path_.string(), std::strerror(cause))};
}

}  // namespace divisi
