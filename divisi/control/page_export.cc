#include "divisi/control/page_export.h"

#include <atomic>
#include <thread>
#include <utility>

#include "divisi/net/socket_address.h"

namespace divisi {
namespace {

class ServedExport final : public PageExport {
 public:
  ServedExport(HugeMemory memory, std::shared_ptr<HostStore> store)
      : memory_(std::move(memory)), source_(std::move(store)) {}

  Result<void> Start(const PageExportOptions& options, std::unique_ptr<Transport> transport,
                     Logger& logger) {
    ASSIGN_OR_RETURN(server_,
                     MakeStoreServer({.self = options.self,
                                      .host = options.host,
                                      .port = options.port,
                                      .tls = options.tls,
                                      .source = &source_},
                                     std::move(transport),
                                     {memory_.data(), static_cast<size_t>(memory_.size().value)},
                                     clock_, logger));
    const bool told = !options.advertise.empty();
    address_ = HostAndPort(told ? options.advertise : options.host, server_->port());
    thread_ = std::thread([this] { server_->Run(stop_); });
    return {};
  }

  ~ServedExport() override {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

  std::string address() const override { return address_; }

 private:
  const SteadyClock clock_;
  const HugeMemory memory_;
  HostSource source_;
  std::unique_ptr<StoreServer> server_;
  std::string address_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<PageExport>> MakePageExport(const PageExportOptions& options,
                                                   std::unique_ptr<Transport> transport,
                                                   std::shared_ptr<HostStore> store,
                                                   Logger& logger) {
  ASSIGN_OR_RETURN(HugeMemory memory,
                   HugeMemory::Reserve(options.memory, "pages that other workers read"));
  auto made = std::make_unique<ServedExport>(std::move(memory), std::move(store));
  RETURN_IF_ERROR(made->Start(options, std::move(transport), logger));
  return std::unique_ptr<PageExport>(std::move(made));
}

}  // namespace divisi
