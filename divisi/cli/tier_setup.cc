#include "divisi/cli/tier_setup.h"

#include <utility>

#include "divisi/cli/peer_setup.h"
#include "divisi/cli/pool_setup.h"

namespace divisi {

PageShape PageShapeOf(const KvLayout& layout) {
  return {.type = layout.type == ComputeType::kBf16 ? ElementType::kBf16 : ElementType::kF32,
          .layers = layout.layers,
          .layer_bytes = layout.LayerBytes()};
}

Result<std::unique_ptr<TierDriver>> OpenTiers(const ServeOptions& options,
                                              const std::optional<TlsFiles>& tls,
                                              ServedModel& model, Logger& logger) {
  if (!options.HasTiers()) return std::unique_ptr<TierDriver>();
  if (options.kv_host.empty() && !options.kv_disk.empty()) {
    return Error{
        Code::kInvalidArgument,
        "--kv-disk needs --kv-host: pages go to the disk by way of host memory; give some, "
        "as in --kv-host 2GiB"};
  }
  auto host = options.kv_host.empty() ? Result<Bytes>(Bytes(0)) : ParseBytes(options.kv_host);
  if (!host) return WithContext(host.error(), "--kv-host");
  auto disk = ParseBytes(options.kv_disk_size);
  if (!disk) return WithContext(disk.error(), "--kv-disk-size");
  const KvPages& pages = model.executor->pages();
  const KvLayout& layout = pages.layout();
  const PageShape shape = PageShapeOf(layout);
  ASSIGN_OR_RETURN(auto pool, OpenPool(options, tls, RemotePageStore::MemoryFor(shape)));
  ASSIGN_OR_RETURN(auto peers, OpenPeers(options, tls, RemotePageStore::MemoryFor(shape)));
  auto tiers = TierDriver::Open(
      {.shape = shape,
       .model = RootKey(KeySpaceOf(model.Scheduling(options), {})),
       .device = pages.memory(),
       .host = *host,
       .disk = options.kv_disk,
       .disk_size = *disk,
       .disk_writes_per_day = options.kv_disk_dwpd,
       .disk_writes = options.kv_disk_writes == "all" ? DiskWrites::kAll : DiskWrites::kAdmitted,
       .pool = std::move(pool),
       .peers = std::move(peers)},
      logger);
  if (!tiers) {
    return WithContext(tiers.error(),
                       options.kv_disk.empty() ? "--kv-host" : "--kv-host, --kv-disk");
  }
  const PrefixLoaderOptions loader = (*tiers)->LoaderOptions();
  logger.Log(LogLevel::kInfo, "kv tiers",
             {{"host_pages", loader.tiers.host_pages},
              {"disk_pages", loader.tiers.disk_pages},
              {"pool_nodes", static_cast<int64_t>(options.kv_pool.size())},
              {"page_bytes", loader.page.value}});
  return std::move(*tiers);
}

}  // namespace divisi
