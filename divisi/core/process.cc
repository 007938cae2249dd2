#include "divisi/core/process.h"

#include <unistd.h>

#include <cstdio>

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

Bytes AvailableMemory() {
  std::FILE* file = std::fopen("/proc/meminfo", "r");
  if (file == nullptr) return Bytes(0);
  char line[128];
  long long kibibytes = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "MemAvailable: %lld kB", &kibibytes) == 1) break;
  }
  std::fclose(file);
  return Bytes(int64_t{kibibytes} << 10);
}

}  // namespace divisi
