#include "divisi/cli/control_options.h"

#include <CLI/CLI.hpp>

namespace divisi {

Result<std::optional<TlsFiles>> ControlTlsOptions::Files() const {
  if (certificate.empty() && key.empty() && authority.empty()) return std::optional<TlsFiles>();
  if (certificate.empty() || key.empty() || authority.empty()) {
    return Error{Code::kInvalidArgument,
                 "--control-cert, --control-key and --control-ca go together"};
  }
  return std::optional(TlsFiles{certificate, key, authority});
}

void AddControlTlsOptions(CLI::App& command, ControlTlsOptions& options) {
  command.add_option("--control-cert", options.certificate,
                     "This process's certificate (PEM) for TLS on control connections");
  command.add_option("--control-key", options.key, "Its private key (PEM)");
  command.add_option("--control-ca", options.authority,
                     "The authority (PEM) that the other side's certificate must come from");
}

}  // namespace divisi
