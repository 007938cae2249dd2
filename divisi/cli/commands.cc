#include "divisi/cli/commands.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "divisi/core/file.h"
#include "divisi/core/yaml.h"

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

Catalog CatalogWith(const std::vector<std::string>& files) {
  Catalog catalog = Catalog::BuiltIn();
  for (const std::string& path : files) {
    const auto text = ReadFile(path, kMaxYamlBytes);
    if (!text) FailCommand(text.error());
    if (const auto added = catalog.Add(*text, path); !added) FailCommand(added.error());
  }
  return catalog;
}

}  // namespace divisi
