// divisi catalog: what the planner knows by name, with the source of each figure.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "divisi/cli/catalog_view.h"
#include "divisi/cli/commands.h"

namespace divisi {
namespace {

struct Options {
  std::string kind;
  std::vector<std::string> name;  // Its words, so that it needs no quotes.
  std::string format = "text";
  std::vector<std::string> catalogs;
};

void Run(const Options& options) {
  CatalogQuery query{.kind = options.kind};
  for (const std::string& word : options.name) query.name += (query.name.empty() ? "" : " ") + word;
  const Catalog catalog = CatalogWith(options.catalogs);
  std::string output;
  if (options.format == "json") {
    const auto json = CatalogJson(catalog, query);
    if (!json) FailCommand(json.error());
    output = json->Dump(2) + "\n";
  } else {
    const auto text = CatalogText(catalog, query);
    if (!text) FailCommand(text.error());
    output = *text;
  }
  std::fputs(output.c_str(), stdout);
}

}  // namespace

void AddCatalogCommand(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("catalog", "Cards, processors, links, disks, servers and models by name");
  command->add_option("kind", options->kind,
                      "cards, processors, links, disks, servers or models (default: all)");
  command->add_option("name", options->name, "An entry, whose figures and sources are shown");
  command->add_option("--catalog", options->catalogs, "YAML file that adds to the catalogue")
      ->allow_extra_args(false);
  command->add_option("--format", options->format, "text or json")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}));
  command->footer(
      "JSON: {kind: [names]}; with a kind {kind, names}; with a name {kind, name, figures [{key, "
      "text, source}]},\nand for a model derived {parameters, active_parameters, "
      "kv_bytes_per_token}.\nExample:\n  divisi catalog card H20");
  command->callback([options] { Run(*options); });
}

}  // namespace divisi
