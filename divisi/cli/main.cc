// divisi: one binary, one subcommand per job. A request's path through the code starts at
// serve_command.cc.
#include <CLI/CLI.hpp>

#include "divisi/cli/commands.h"

int main(int argc, char** argv) {
  CLI::App app(
      "Divisi serves large language models; tokens never depend on where the work was placed.\n"
      "Start with: divisi serve --model DIR");
  app.name("divisi");
  app.set_version_flag("--version", DIVISI_VERSION);
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::help);
  divisi::AddServeCommand(app);
  divisi::AddBenchEngineCommand(app);
  divisi::AddBenchServeCommand(app);

  divisi::AddModelCommand(app);

  CLI11_PARSE(app, argc, argv);
  return 0;
}
