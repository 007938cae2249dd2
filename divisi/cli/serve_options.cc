#include "divisi/cli/serve_options.h"

#include <CLI/CLI.hpp>

#include "divisi/model/ops.h"

namespace divisi {

CLI::Validator NotEmpty() {
  return CLI::Validator(
      [](const std::string& value) {
        return value.empty() ? std::string("the value is empty") : std::string();
      },
      "");
}

void AddHttpOptions(CLI::App& serve, ServeOptions& options) {
  serve.add_option("--host", options.host, "Address to listen on")->capture_default_str();
  serve.add_option("--port", options.port, "Port to listen on; 0 takes any free one")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  serve
      .add_option("--served-model-name", options.served_names,
                  "Names that requests may use; the first is what answers say [the directory's]")
      ->check(NotEmpty());
  serve.add_option("--api-key", options.api_key, "Key that clients must send as a bearer token")
      ->envname("DIVISI_API_KEY")
      ->check(NotEmpty());
  serve.add_option("--chat-template", options.chat_template,
                   "Jinja file to use instead of the checkpoint's template");
  serve.add_option("--allowed-origin", options.allowed_origin, "Origin for CORS, or *");
}

void AddComputeOptions(CLI::App& serve, ServeOptions& options) {
  serve
      .add_option("--dtype", options.dtype,
                  "Compute type: auto is bfloat16 for BF16 weights, float32 for others")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "bfloat16", "float32"}));
  std::vector<std::string> isas = {"auto"};
  for (const Isa isa : SupportedIsas()) isas.push_back(IsaName(isa));
  serve.add_option("--isa", options.isa, "Instruction set; all give the same tokens")
      ->capture_default_str()
      ->check(CLI::IsMember(isas));
  serve.add_option("--threads", options.threads, "Compute threads; 0 is one per core")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
  serve
      .add_option("--weights", options.weights,
                  "Use weights as the files are mapped, or copied to huge pages: faster to read, "
                  "but in memory twice while the files stay cached; auto copies where both fit")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "mapped", "copied"}));
}

void AddLimitOptions(CLI::App& serve, ServeOptions& options) {
  serve.add_option("--max-num-seqs", options.max_num_seqs, "Requests running at once")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{65536}));
  serve
      .add_option("--max-num-batched-tokens", options.max_num_batched_tokens,
                  "Tokens of one step: larger helps prompts, smaller helps running streams")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  serve
      .add_option("--max-model-len", options.max_model_len,
                  "Longest prompt plus output; 0 is what model and memory allow")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  serve
      .add_option("--max-waiting", options.max_waiting,
                  "Queued requests; beyond it clients get 429")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  serve
      .add_option("--kv-memory", options.kv_memory,
                  "Memory for keys and values, such as 4GiB; auto is half of what is available")
      ->capture_default_str();
  serve.add_flag("!--no-prefix-caching", options.share_prefixes,
                 "Do not share pages between requests with a common prefix");
}

void AddTierOptions(CLI::App& serve, ServeOptions& options) {
  serve.add_option("--kv-host", options.kv_host,
                   "Host memory for KV that --kv-memory has no room for, such as 8GiB [none]");
  serve.add_option("--kv-disk", options.kv_disk,
                   "Directory for KV that outlives the process; its own, on a local SSD. Needs "
                   "--kv-host [none]");
  serve.add_option("--kv-disk-size", options.kv_disk_size, "Most that the directory may take")
      ->capture_default_str();
  serve
      .add_option("--kv-disk-writes", options.kv_disk_writes,
                  "What is written: admitted is what will likely be used again, within the disk's "
                  "endurance; all is every page, at once")
      ->capture_default_str()
      ->check(CLI::IsMember({"admitted", "all"}));
  serve
      .add_option("--kv-disk-dwpd", options.kv_disk_dwpd,
                  "Endurance: writes of --kv-disk-size that the disk takes a day")
      ->capture_default_str()
      ->check(CLI::Range(1e-6, 1e9));
  serve
      .add_option("--kv-pool", options.kv_pool,
                  "Remote pool for KV: HOST:PORT of each `divisi store`, with commas and named "
                  "alike by all, or one redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE] [none]")
      ->delimiter(',')
      ->check(NotEmpty());
  serve
      .add_option("--kv-pool-copies", options.kv_pool_copies,
                  "Nodes of the pool that keep each page: 2 outlives the loss of one")
      ->capture_default_str()
      ->check(CLI::Range(1, 2));
  serve.add_option("--kv-pool-listen", options.kv_pool_listen,
                   "HOST:PORT where the pool's pages arrive, for who must open ports one by one "
                   "[the host of --data-listen, any free port]");
}

void AddDataOptions(CLI::App& command, ServeOptions& options) {
  command
      .add_option("--data-listen", options.data_listen,
                  "HOST:PORT where pages arrive from others; port 0 takes any free one")
      ->capture_default_str();
  command
      .add_option("--data-advertise", options.data_advertise,
                  "The host that others are told, where it differs from the one listened on")
      ->check(NotEmpty());
}

Logger::Options LogOptions(const ServeOptions& options) {
  constexpr std::pair<const char*, LogLevel> kLevels[] = {{"debug", LogLevel::kDebug},
                                                          {"info", LogLevel::kInfo},
                                                          {"warning", LogLevel::kWarning},
                                                          {"error", LogLevel::kError}};
  Logger::Options log{.json = options.log_json};
  for (const auto& [name, level] : kLevels) {
    if (options.log_level == name) log.least = level;
  }
  return log;
}

void AddProcessOptions(CLI::App& serve, ServeOptions& options) {
  serve
      .add_option("--drain-seconds", options.drain_seconds,
                  "How long running requests may go on after SIGTERM")
      ->capture_default_str()
      ->check(CLI::Range(0.0, kMostDrainSeconds));
  serve.add_flag("--log-json", options.log_json, "Log one JSON object per line");
  serve.add_option("--log-level", options.log_level, "The least that is logged")
      ->capture_default_str()
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
}

}  // namespace divisi
