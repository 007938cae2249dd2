#include <algorithm>
#include <cmath>
#include <limits>

#include "divisi/cli/calc_cache.h"
#include "divisi/cli/calc_inputs.h"
#include "divisi/core/format.h"
#include "divisi/plan/flow.h"
#include "divisi/plan/kv_tiers.h"

namespace divisi {
namespace {

constexpr const char* kFormula =
    "r = V (1 - hit) / T_prefill       bytes/s of new KV; V: state of --tokens\n"
    "residence = C / r                 s until a tier of C bytes, first in first out, evicts it\n"
    "needed = r T                      bytes to keep KV for --interval\n"
    "fetch: host V / B_pcie, disk V / B_disk, remote V / B_network + V / B_pcie      s\n"
    "serial = T_read + T_new           s; T_new: computing --new-tokens after a hit\n"
    "layer-wise = max(T_read + T_new / L, T_read / L + T_new)\n"
    "buffer = B (T_read - T_new)       bytes, rounded up to whole layers; 0 where T_new >= T_read\n"
    "tokens to hide = min n: T_prefill(n after --tokens) >= T_read\n"
    "prefetch depth = floor(host memory / V)           requests\n"
    "allowed writes = capacity DWPD / 86400 s          bytes/s; excess = r / allowed\n"
    "V in bytes, B in bytes/s, T in s, L: layers. Of a card: its share of the server.\n"
    "Source: section 9.5.2.";

struct Setting {
  ModelCost model;
  CalcDevice device;
  DiskSpec disk;
  Bytes device_room;
  Bytes state;
  TierRates rates;
  Tokens cached;
  Seconds prefill;
  Seconds hit_compute;
  BytesPerSecond production;
};

// --device-room, or what weights leave of the card's memory.
Result<Bytes> DeviceRoom(const CalcValues& in, const ModelCost& model, const CardSpec& card) {
  const std::string& given = in.Text("device-room");
  if (given.empty()) return std::max(card.memory - model.ResidentWeights(), Bytes(0));
  const auto room = ParseBytes(given);
  if (!room) return WithContext(room.error(), "--device-room");
  return *room;
}

Result<Setting> SettingOf(const CalcValues& in) {
  ASSIGN_OR_RETURN(const ModelCost model, ModelOf(in));
  ASSIGN_OR_RETURN(const CalcDevice device, DeviceOf(in));
  ASSIGN_OR_RETURN(const Bytes per_token, StatePerToken(in));
  const auto disk = in.catalog().Disk(in.Text("disk"));
  if (!disk) return WithContext(disk.error(), "--disk");
  const Tokens cached = TokensOf(in, "tokens");
  const Tokens added = TokensOf(in, "new-tokens");
  Setting setting{.model = model, .device = device, .disk = **disk};
  ASSIGN_OR_RETURN(setting.device_room, DeviceRoom(in, model, device.card));
  setting.state = Times(per_token, static_cast<double>(cached.value));
  setting.rates = {.host_to_device = in.GetBytesPerSecond("pcie"),
                   .disk_read = (*disk)->read,
                   .network = in.GetBytesPerSecond("network")};
  setting.cached = cached;
  setting.prefill = TimeOf(model.Prefill(cached, Tokens(0)), device.rates).Total();
  setting.hit_compute = TimeOf(model.Prefill(added, cached), device.rates).Total();
  setting.production = ProductionRate(setting.state, setting.prefill, in.Count("hit"));
  return setting;
}

CalcTable TierTable(const Setting& setting, Bytes host_memory) {
  // A pool grows with its nodes: it has no capacity of its own to show.
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  struct Row {
    const char* name;
    Tier tier;
    double capacity;
  };
  const Row rows[] = {{"device", Tier::kDevice, static_cast<double>(setting.device_room.value)},
                      {"host", Tier::kHost, static_cast<double>(host_memory.value)},
                      {"disk", Tier::kDisk, static_cast<double>(setting.disk.capacity.value)},
                      {"remote", Tier::kRemote, kNone}};
  CalcTable table{"tiers",
                  "Tiers of one card",
                  {},
                  {{"capacity", 0, CalcUnit::kBytes, "capacity"},
                   {"residence", 0, CalcUnit::kSeconds, "residence"},
                   {"fetch", 0, CalcUnit::kSeconds, "fetch"},
                   {"tokens_to_hide", 0, CalcUnit::kCount, "new tokens that hide it"}},
                  {}};
  for (const Row& row : rows) {
    const Seconds fetch = FetchTime(setting.state, row.tier, setting.rates);
    const auto hide = TokensToHide(setting.model, setting.device.rates, setting.cached, fetch);
    const bool known = std::isfinite(row.capacity);
    table.row_names.push_back(row.name);
    table.rows.push_back(
        {row.capacity,
         known ? Residence(WholeBytes(row.capacity), setting.production).value : kNone, fetch.value,
         fetch == Seconds(0) ? 0
         : hide              ? static_cast<double>(hide->value)
                             : kNever.value});
  }
  return table;
}

void AddLoading(const Setting& setting, CalcResult& result) {
  const int layers = setting.model.layers;
  const LayerwiseLoad host{layers, FetchTime(setting.state, Tier::kHost, setting.rates),
                           setting.hit_compute};
  const LayerwiseLoad disk{layers, FetchTime(setting.state, Tier::kDisk, setting.rates),
                           setting.hit_compute};
  const double count = layers;
  const int buffer = host.BufferLayers();
  for (CalcFigure& figure : std::vector<CalcFigure>{
           FigureOf("hit_compute", setting.hit_compute, "computing the new tokens after a hit"),
           FigureOf("layer_read", host.read / count, "reading a layer from host memory"),
           FigureOf("layer_compute", host.compute / count, "computing a layer"),
           FigureOf("serial", host.Serial(), "all read from host memory, then computed"),
           FigureOf("layerwise", host.Total(), "read layer by layer while computing"),
           FigureOf("buffer", BufferBytes(setting.state, host), "reading beyond computing"),
           FigureOf("buffer_layers", double(buffer), "whole layers of it, to be preloaded"),
           FigureOf("buffered", host.Total(buffer), "with these layers preloaded"),
           FigureOf("layers_to_hide", double(host.LayersToHide()), "layers that end all waiting"),
           FigureOf("disk_layer_read", disk.read / count, "reading a layer from the disk"),
           FigureOf("disk_layerwise", disk.Total(), "layer by layer from the disk")}) {
    result.figures.push_back(std::move(figure));
  }
}

void AddDisk(const Setting& setting, CalcResult& result) {
  constexpr double kSecondsPerYear = 365 * 86400.0;
  const DiskSpec& disk = setting.disk;
  const Endurance endurance{disk.capacity, disk.writes_per_day,
                            Seconds(disk.endurance_years * kSecondsPerYear)};
  const BytesPerSecond made = setting.production;
  for (CalcFigure& figure : std::vector<CalcFigure>{
           FigureOf("disk_write", TimeToMove(setting.state, disk.write), "writing it to the disk"),
           FigureOf("disk_allowed", endurance.AllowedWrites(), "writes that the endurance allows"),
           FigureOf("disk_excess", endurance.Excess(made), "new KV over what is allowed"),
           FigureOf("disk_share", endurance.SustainedShare(made), "share that can be written"),
           FigureOf("disk_life", endurance.LifeAt(made), "life if all is written")}) {
    result.figures.push_back(std::move(figure));
  }
}

std::string IntervalNote(Bytes needed, const CalcTable& tiers) {
  const auto need = static_cast<double>(needed.value);
  for (size_t row = 0; row < tiers.rows.size(); ++row) {
    if (!(tiers.rows[row][0] >= need)) continue;
    return Format("The interval fits {}.", tiers.row_names[row] == "device"
                                               ? "the device's memory"
                                               : "the " + tiers.row_names[row]);
  }
  return "No single tier holds the interval: several of them, or a remote pool, must.";
}

Result<CalcResult> Run(const CalcValues& in) {
  ASSIGN_OR_RETURN(const Setting setting, SettingOf(in));
  const Bytes host_memory = in.GetBytes("host-memory");
  const Bytes needed = CapacityToKeep(setting.production, in.GetSeconds("interval"));
  const double pool_tokens = in.Count("pool-blocks") * in.Count("block-tokens");
  const double tokens = in.Count("tokens");
  CalcResult result;
  result.figures = {
      FigureOf("state", setting.state, "KV of the prefix"),
      FigureOf("prefill", setting.prefill, "computing it"),
      FigureOf("production", setting.production, "new KV of a card that prefills without pause"),
      FigureOf("needed", needed, "capacity that keeps KV for the interval"),
      FigureOf("prefetch_depth", double(WholeObjects(host_memory, setting.state)),
               "prefixes that host memory holds: depth of prefetching"),
      FigureOf("pool", Times(setting.state, pool_tokens / tokens), "KV of the pool's blocks")};
  AddLoading(setting, result);
  AddDisk(setting, result);
  result.tables.push_back(TierTable(setting, host_memory));
  result.notes.push_back(IntervalNote(needed, result.tables.back()));
  return result;
}

}  // namespace

CalcTopic KvTiersTopic() {
  return {"kv-tiers",
          "KV in HBM, host memory, SSD and a remote pool: rates, residence, loading, endurance",
          kFormula,
          {ModelInput(),
           StateModelInput(),
           CardInput("A100 80GB SXM"),
           EfficiencyInput(),
           TokensInput("tokens", "8192", "Tokens of the cached prefix"),
           TokensInput("new-tokens", "256", "New tokens after a hit"),
           {"hit", CalcUnit::kCount, "0", "Share of prompts that is found in the cache",
            CalcLimit::kShare},
           {"interval", CalcUnit::kSeconds, "10s", "Time between two uses of a prefix"},
           {"device-room", CalcUnit::kText, "",
            "Memory of the card for KV, as 63.6GB; empty: what weights leave"},
           {"host-memory", CalcUnit::kBytes, "256GiB", "Host memory for one card"},
           {"disk", CalcUnit::kText, "Solidigm D7-P5520 3.84TB",
            "The card's SSD, a name of the catalogue"},
           RateInput("pcie", "25GB/s", "Host memory to card, one direction"),
           RateInput("network", "25GB/s", "Remote pool to host memory"),
           {"pool-blocks", CalcUnit::kCount, "50000", "Blocks of a pool", CalcLimit::kWhole},
           TokensInput("block-tokens", "512", "Tokens of a block")},
          Run};
}

}  // namespace divisi
