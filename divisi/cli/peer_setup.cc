#include "divisi/cli/peer_setup.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "divisi/cli/host_port.h"
#include "divisi/control/store_client.h"
#include "divisi/core/random.h"
#include "divisi/net/socket_address.h"
#include "divisi/net/ucx_transport.h"

namespace divisi {
namespace {

const Clock& TheClock() {
  static const SteadyClock clock;
  return clock;
}

Result<std::unique_ptr<Transport>> OpenAs(NodeId self, const ServeOptions& options) {
  auto transport = OpenUcxTransport(
      {.self = self, .listen = options.data_listen, .advertise = options.data_advertise},
      TheClock());
  if (!transport) return WithContext(transport.error(), "--data-listen, --data-advertise");
  return transport;
}

// Where others ask for pages: any free port where they arrive, or what was given.
Result<PageExportOptions> ExportOptions(const ServeOptions& options) {
  if (options.kv_peers != "auto") {
    ASSIGN_OR_RETURN(const auto at, ParseListenAt("--kv-peers", options.kv_peers));
    return PageExportOptions{.host = at.first, .port = at.second};
  }
  ASSIGN_OR_RETURN(const SocketAddress listen, ParseSocketAddress(options.data_listen));
  std::string host = listen.Text();
  host.resize(host.rfind(':'));
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  return PageExportOptions{.host = std::move(host), .advertise = options.data_advertise};
}

Result<std::unique_ptr<PageExport>> MakeExport(const ExportSetup& setup,
                                               std::shared_ptr<HostStore> store, Logger& logger) {
  ASSIGN_OR_RETURN(PageExportOptions options, ExportOptions(setup.options));
  options.self = NodeId{SystemRandom() | 1};
  options.tls = setup.tls;
  options.memory = setup.memory;
  ASSIGN_OR_RETURN(auto transport, OpenAs(options.self, setup.options));
  auto made = MakePageExport(options, std::move(transport), std::move(store), logger);
  if (!made) return WithContext(made.error(), "--kv-peers");
  return made;
}

}  // namespace

void AddPeerOptions(CLI::App& command, ServeOptions& options) {
  options.kv_peers = "auto";
  command
      .add_option("--kv-peers", options.kv_peers,
                  "Where other workers ask for pages of this one's --kv-host: HOST:PORT, auto (any "
                  "free port where their pages arrive), or off: they do not read its, nor it "
                  "theirs")
      ->capture_default_str()
      ->check(NotEmpty());
}

Result<std::shared_ptr<RemoteHub>> OpenPeers(const ServeOptions& options,
                                             const std::optional<TlsFiles>& tls, Bytes memory) {
  if (options.kv_peers == "off") return std::shared_ptr<RemoteHub>();
  using Made = Result<std::unique_ptr<RemotePages>>;
  return RemoteHub::Create(
      memory, [&](std::span<std::byte> to, const Clock& clock, std::function<void()> wake) -> Made {
        const NodeId self{SystemRandom() | 1};
        ASSIGN_OR_RETURN(auto transport, OpenAs(self, options));
        auto client = MakeStoreClient({.self = self,
                                       .peers = true,
                                       .tls = tls,
                                       .seed = SystemRandom(),
                                       .wake = std::move(wake)},
                                      std::move(transport), to, clock);
        if (!client) return WithContext(client.error(), "--kv-peers");
        return client;
      });
}

Result<std::unique_ptr<PageExport>> OpenExport(const ExportSetup& setup,
                                               std::shared_ptr<HostStore> store, Logger& logger) {
  if (setup.options.kv_peers == "off") return std::unique_ptr<PageExport>();
  auto made = MakeExport(setup, std::move(store), logger);
  if (made) {
    logger.Log(LogLevel::kInfo, "kv host memory is read by others",
               {{"address", (*made)->address()}});
    return made;
  }
  if (setup.options.kv_peers != "auto") return made.error();
  logger.Log(LogLevel::kWarning, "others do not read this worker's KV host memory",
             {{"why", made.error().message}});
  return std::unique_ptr<PageExport>();
}

}  // namespace divisi
