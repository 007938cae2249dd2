// What a server of a model is told on the command line; serve, worker and gateway take each a part.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "divisi/core/log.h"

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace divisi {

inline constexpr double kDrainSeconds = 30;
inline constexpr double kMostDrainSeconds = 86400;

struct ServeOptions {
  std::filesystem::path model;
  std::string host = "127.0.0.1";
  int port = 8000;
  std::vector<std::string> served_names;  // Empty: the directory's name.
  std::string api_key;
  std::filesystem::path chat_template;
  std::string dtype = "auto";
  std::string isa = "auto";
  int threads = 0;  // 0: one per core.
  int64_t max_num_seqs = 256;
  // A step of this many rows is what a running stream waits for at most. A CPU core does some
  // hundred rows a second of a small model, so this is less than accelerators take.
  int64_t max_num_batched_tokens = 512;
  int64_t max_model_len = 0;  // 0: what the model and the KV memory allow.
  int64_t max_waiting = 1024;
  std::string kv_memory = "auto";
  std::string weights = "auto";
  bool share_prefixes = true;
  // Tiers of KV below --kv-memory; empty: there is none.
  std::string kv_host;
  std::filesystem::path kv_disk;
  std::string kv_disk_size = "16GiB";
  std::string kv_disk_writes = "admitted";
  double kv_disk_dwpd = 1;
  std::vector<std::string> kv_pool;
  size_t kv_pool_copies = 1;
  std::string kv_peers = "off";  // Of a worker: "auto", HOST:PORT, or "off"
  std::string data_listen = "127.0.0.1:0";
  std::string kv_pool_listen;  // Empty: the host of data_listen, any port.
  std::string data_advertise;
  double drain_seconds = kDrainSeconds;
  bool log_json = false;
  std::string log_level = "info";
  std::string allowed_origin;

  bool HasTiers() const { return !kv_host.empty() || !kv_disk.empty() || !kv_pool.empty(); }
};

// An empty value is a variable that was not set, hardly what was meant.
CLI::Validator NotEmpty();

// --host, --port, --served-model-name, --api-key, --chat-template, --allowed-origin
void AddHttpOptions(CLI::App& serve, ServeOptions& options);
// What the model is computed in and with: --dtype, --isa, --threads, --weights
void AddComputeOptions(CLI::App& serve, ServeOptions& options);
// --max-num-seqs, --max-num-batched-tokens, --max-model-len, --max-waiting, --kv-memory,
// --no-prefix-caching
void AddLimitOptions(CLI::App& serve, ServeOptions& options);
// --kv-host, --kv-disk, --kv-disk-size, --kv-disk-writes, --kv-disk-dwpd, --kv-pool,
// --kv-pool-copies
void AddTierOptions(CLI::App& serve, ServeOptions& options);
// --data-listen, --data-advertise
void AddDataOptions(CLI::App& command, ServeOptions& options);
// --drain-seconds, --log-json, --log-level
void AddProcessOptions(CLI::App& serve, ServeOptions& options);
Logger::Options LogOptions(const ServeOptions& options);

}  // namespace divisi
