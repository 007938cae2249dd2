// divisi calc: the topics of calc.h as subcommands.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "divisi/cli/calc.h"
#include "divisi/cli/commands.h"

namespace divisi {
namespace {

struct Options {
  std::map<std::string, std::string> given;
  std::string format = "text";
  std::vector<std::string> catalogs;
};

void Run(const CalcTopic& topic, const Options& options) {
  const Catalog catalog = CatalogWith(options.catalogs);
  const auto result = RunCalc(topic.name, catalog, options.given);
  if (!result) FailCommand(result.error());
  const std::string text =
      options.format == "json" ? CalcJson(topic.name, *result).Dump(2) + "\n" : CalcText(*result);
  std::fputs(text.c_str(), stdout);
}

void AddTopic(CLI::App& group, const CalcTopic& topic) {
  CLI::App* command = group.add_subcommand(topic.name, topic.summary);
  command->footer(topic.formula);
  auto options = std::make_shared<Options>();  // Shared with the callbacks, which run later.
  for (const CalcInput& input : topic.inputs) {
    command
        ->add_option_function<std::string>(
            "--" + input.name,
            [options, name = input.name](const std::string& text) { options->given[name] = text; },
            input.help)
        ->default_str(input.value);
  }
  command->add_option("--catalog", options->catalogs, "YAML files that add to the catalogue");
  command->add_option("--format", options->format, "text or json")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}));
  command->callback([&topic, options] { Run(topic, *options); });
}

}  // namespace

void AddCalcCommand(CLI::App& app) {
  CLI::App* group = CommandGroup(app, "calc", "The planner's arithmetic, one piece at a time");
  group->footer(
      "Every default is the specification's example. Quantities carry units: 1.125GiB, 25GB/s, "
      "200Gbit/s, 5us, 312TFLOP/s.\nExample:\n  divisi calc kv-transfer --bandwidth 50GB/s "
      "--format json");
  for (const CalcTopic& topic : CalcTopics()) AddTopic(*group, topic);
}

}  // namespace divisi
