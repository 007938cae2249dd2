// From --kv-peers to what a worker reads of other workers' host memory, and they of its own.
#pragma once

#include <memory>
#include <optional>

#include "divisi/cli/serve_options.h"
#include "divisi/control/page_export.h"
#include "divisi/kv/remote_hub.h"

namespace divisi {

// --kv-peers
void AddPeerOptions(CLI::App& command, ServeOptions& options);

// None with "off". memory: where its pages arrive.
// Errors: those of OpenUcxTransport and MakeStoreClient, with the option.
Result<std::shared_ptr<RemoteHub>> OpenPeers(const ServeOptions& options,
                                             const std::optional<TlsFiles>& tls, Bytes memory);

struct ExportSetup {
  const ServeOptions& options;
  std::optional<TlsFiles> tls;
  Bytes memory;  // As of PageExportOptions
};
// None with "off", and where "auto" can't, which is logged. The logger outlives the result.
// Errors: kInvalidArgument, and those of MakePageExport, with the option.
Result<std::unique_ptr<PageExport>> OpenExport(const ExportSetup& setup,
                                               std::shared_ptr<HostStore> store, Logger& logger);

}  // namespace divisi
