#include "divisi/cli/control_options.h"

#include <CLI/CLI.hpp>
#include <charconv>

#include "divisi/cli/serve_options.h"
#include "divisi/core/format.h"

namespace divisi {

Result<std::optional<TlsFiles>> ControlTlsOptions::Files() const {
  if (certificate.empty() && key.empty() && authority.empty()) return std::optional<TlsFiles>();
  if (certificate.empty() || key.empty() || authority.empty()) {
    return Error{Code::kInvalidArgument,
                 "--control-cert, --control-key and --control-ca go together"};
  }
  return std::optional(TlsFiles{certificate, key, authority});
}

std::optional<EtcdOptions> EtcdCommandOptions::Options() const {
  if (endpoints.empty()) return std::nullopt;
  return EtcdOptions{endpoints, cluster, Seconds(lease_seconds)};
}

Result<std::optional<int64_t>> ParseDisaggregateFrom(const std::string& text) {
  constexpr int64_t kMostTokens = int64_t{1} << 30;
  if (text == "auto") return std::optional<int64_t>();
  int64_t tokens = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), tokens);
  if (error == std::errc() && end == text.data() + text.size() && tokens >= 0 &&
      tokens <= kMostTokens) {
    return std::optional(tokens);
  }
  return Error{
      Code::kInvalidArgument,
      Format("'{}' is neither auto nor a number of tokens from 0 to {}", text, kMostTokens)};
}

void AddEtcdOptions(CLI::App& command, EtcdCommandOptions& options) {
  command
      .add_option("--etcd", options.endpoints,
                  "http://HOST:PORT of etcd, with commas between its members: gateways and workers "
                  "find each other there")
      ->delimiter(',');
  command.add_option("--cluster", options.cluster, "The cluster's name in etcd")
      ->capture_default_str()
      ->check(NotEmpty());
  command
      .add_option(
          "--lease-seconds", options.lease_seconds,
          "How long a member that is not heard keeps its place in etcd; the same everywhere")
      ->capture_default_str()
      ->check(CLI::Range(2.0, 600.0));
}

void AddControlTlsOptions(CLI::App& command, ControlTlsOptions& options) {
  command
      .add_option("--control-cert", options.certificate,
                  "This process's certificate (PEM) for TLS on control connections")
      ->check(NotEmpty());
  command.add_option("--control-key", options.key, "Its private key (PEM)")->check(NotEmpty());
  command
      .add_option("--control-ca", options.authority,
                  "The authority (PEM) that the other side's certificate must come from")
      ->check(NotEmpty());
}

}  // namespace divisi
