// A worker's host memory as other workers read it: the store protocol's server (store_server.h),
// read only, on a thread of its own, so that the worker's does nothing for it.
#pragma once

#include <memory>
#include <string>

#include "divisi/control/store_server.h"
#include "divisi/core/huge_memory.h"

namespace divisi {

struct PageExportOptions {
  NodeId self;  // The transport's.
  std::string host = "127.0.0.1";
  int port = 0;
  std::optional<TlsFiles> tls;
  std::string advertise;  // The host that others are told; empty: `host`
  Bytes memory;           // For copies of pages that are being read
};

class PageExport {
 public:
  // Its sessions end, and nothing of it is read any more.
  virtual ~PageExport() = default;
  // HOST:PORT, for Direct (remote_pages.h).
  virtual std::string address() const = 0;
};

// The logger outlives the result.
// Errors: kResourceExhausted for memory that the system refuses; those of MakeStoreServer.
Result<std::unique_ptr<PageExport>> MakePageExport(const PageExportOptions& options,
                                                   std::unique_ptr<Transport> transport,
                                                   std::shared_ptr<HostStore> store,
                                                   Logger& logger);

}  // namespace divisi
