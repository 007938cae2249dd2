// divisi: one binary, one subcommand per job. A request's path through the code starts at
// serve_command.cc.
#include <CLI/CLI.hpp>
#include <csignal>

#include "divisi/cli/commands.h"
#include "divisi/cli/parent_death.h"

int main(int argc, char** argv) {
  divisi::DieWithParent();
  CLI::App app(
      "Divisi serves large language models; tokens never depend on where the work was placed.\n"
      "Start with: divisi serve --model DIR");
  app.name("divisi");
  app.set_version_flag("--version", DIVISI_VERSION);
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);  // The error, and where help is.
  divisi::AddPlanCommand(app);
  divisi::AddServeCommand(app);
  divisi::AddExplainRouteCommand(app);
  divisi::AddGatewayCommand(app);
  divisi::AddWorkerCommand(app);
  divisi::AddStoreCommand(app);
  divisi::AddUpCommand(app);
  divisi::AddClusterCommand(app);
  divisi::AddKvEventsCommand(app);
  divisi::AddBenchEngineCommand(app);
  divisi::AddBenchServeCommand(app);

  divisi::AddSimulateCommand(app);
  divisi::AddCalcCommand(app);
  divisi::AddCatalogCommand(app);
  divisi::AddModelCommand(app);

  // A pipe that nobody reads (a log's, an answer's) is an error of that write, not our end.
  std::signal(SIGPIPE, SIG_IGN);
  return divisi::RunCommandLine(app, argc, argv);
}
