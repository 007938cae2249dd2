#include "divisi/cli/commands.h"

#include <CLI/CLI.hpp>
#include <cstdio>

namespace divisi {

void FailCommand(const Error& error) {
  std::fprintf(stderr, "divisi: %s\n", error.message.c_str());
  const bool input = error.code == Code::kInvalidArgument || error.code == Code::kNotFound ||
                     error.code == Code::kOutOfRange;
  // CLI11's way to end a callback with a status; main() turns it into the exit status.
  throw CLI::RuntimeError(input ? 2 : 1);
}

CLI::App* CommandGroup(CLI::App& app, const std::string& name, const std::string& description) {
  const auto found =
      app.get_subcommands([&](CLI::App* child) { return child->get_name() == name; });
  if (!found.empty()) return found.front();
  return app.add_subcommand(name, description)->require_subcommand(1);
}

}  // namespace divisi
