#include "divisi/cli/machine_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace divisi {

Bytes MachineMemory() {
  int64_t bytes = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  // Version 2 and version 1 of control groups. "max", or no such file, is no limit.
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    int64_t limit = 0;
    if (file >> limit && limit > 0) bytes = std::min(bytes, limit);
  }
  return Bytes(bytes);
}

}  // namespace divisi
