// What hardware exists: cards, processors, links, disks and servers, with the figures that
// planning needs. Each figure of the built-in catalogue names its source in the data file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "divisi/core/units.h"

namespace divisi {

// An accelerator. Peaks are dense, of one card.
struct CardSpec {
  std::string name;
  FlopsPerSecond bf16_peak;
  FlopsPerSecond fp8_peak;  // 0 where the card has none.
  BytesPerSecond memory_bandwidth;
  Bytes memory;           // As its maker counts it: 80 GB are 80e9 bytes.
  BytesPerSecond nvlink;  // One direction, payload; 0 where it has none.
  BytesPerSecond pcie;    // One direction, payload.
  int threads = 0;        // Cores, where processor cores stand for a card; 0: it is one.
};

// One socket. Computing rates are those that a kernel reached, by the kernel's instruction set.
struct ProcessorSpec {
  std::string name;
  std::map<std::string, FlopsPerSecond> kernels;  // "avx512", "amx"
  BytesPerSecond local_bandwidth;                 // Of memory at the same socket.
  BytesPerSecond remote_bandwidth;                // Of memory at the other socket.
  Bytes memory;
};

// A way for bytes, one direction.
struct LinkSpec {
  std::string name;
  BytesPerSecond bandwidth;  // Payload: line rate / 8.
  Seconds launch;            // Fixed cost of one transfer.
};

struct DiskSpec {
  std::string name;
  Bytes capacity;
  BytesPerSecond read, write;  // Sequential.
  double writes_per_day = 0;   // Endurance: full rewrites a day (DWPD) ...
  double endurance_years = 0;  // ... for this long.
};

struct ServerSpec {
  std::string name;
  std::string card;  // Names of the catalogue.
  int cards = 0;
  Bytes host_memory;
  std::string disk;
  int disks = 0;
  std::string nic;
  int nics = 0;
};

}  // namespace divisi
