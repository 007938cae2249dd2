#include "divisi/cli/commands.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "divisi/core/file.h"
#include "divisi/core/format.h"
#include "divisi/core/nearest.h"
#include "divisi/core/yaml.h"

namespace divisi {
namespace {

// The first word that should name a command and does not, as a message; empty where all do. CLI11
// would only say that a command is required.
std::string UnknownCommand(const CLI::App& app, int argc, const char* const* argv) {
  const CLI::App* group = &app;
  std::string path = app.get_name();
  for (int i = 1; i < argc && argv[i][0] != '-'; ++i) {
    std::vector<std::string> names;
    const CLI::App* named = nullptr;
    for (const CLI::App* command : group->get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(command->get_name());
      if (names.back() == argv[i]) named = command;
    }
    if (names.empty()) return "";  // The words are this command's own.
    if (named == nullptr) {
      return Format("there is no command '{} {}'{}; see {} --help", path, argv[i],
                    DidYouMean(argv[i], names), path);
    }
    group = named;
    path += " " + named->get_name();
  }
  return "";
}

}  // namespace

void FailCommand(const Error& error) {
  std::fprintf(stderr, "divisi: %s\n", error.message.c_str());
  const bool input = error.code == Code::kInvalidArgument || error.code == Code::kNotFound ||
                     error.code == Code::kOutOfRange;
  // CLI11's way to end a callback with a status; main() turns it into the exit status.
  throw CLI::RuntimeError(input ? kWrongUse : 1);
}

int RunCommandLine(CLI::App& app, int argc, const char* const* argv) {
  if (const std::string unknown = UnknownCommand(app, argc, argv); !unknown.empty()) {
    std::fprintf(stderr, "divisi: %s\n", unknown.c_str());
    return kWrongUse;
  }
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::RuntimeError& failed) {
    return failed.get_exit_code();
  } catch (const CLI::ParseError& error) {
    // Prints it, or the help; CLI11's own numbers, from 100 on, tell callers nothing.
    return app.exit(error) == 0 ? 0 : kWrongUse;
  }
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
