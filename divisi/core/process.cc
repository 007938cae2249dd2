#include "divisi/core/process.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

namespace divisi {

Bytes ResidentMemory() {
  // proc(5): statm's second number is the resident set in pages.
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return Bytes(0);
  long long total = 0;
  long long resident = 0;
  const int read = std::fscanf(file, "%lld %lld", &total, &resident);
  std::fclose(file);
  return Bytes(read == 2 ? resident * sysconf(_SC_PAGESIZE) : 0);
}

Bytes MachineMemory() {
  int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  // Version 2 and version 1 of control groups. "max", or no such file, is no limit.
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    int64_t limit = 0;
    if (file >> limit && limit > 0) bytes = std::min(bytes, limit);
  }
  return Bytes(bytes);
}

Bytes AvailableMemory() {
  std::FILE* file = std::fopen("/proc/meminfo", "r");
  if (file == nullptr) return Bytes(0);
  char line[128];
  long long kibibytes = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "MemAvailable: %lld kB", &kibibytes) == 1) break;
  }
  std::fclose(file);
  return std::min(Bytes(int64_t{kibibytes} << 10), MachineMemory());
}

}  // namespace divisi
