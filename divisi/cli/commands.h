// The commands of the one binary. Each lives in a file of its own and adds itself to the command
// line; CLI11 may be included by files of this directory only.
#pragma once

#include <string>
#include <vector>

#include "divisi/catalog/catalog.h"
#include "divisi/core/result.h"

namespace CLI {
class App;
}

namespace divisi {

// The exit status of a command that was asked for what can't be.
inline constexpr int kWrongUse = 2;

// Prints "divisi: <message>" to standard error and leaves the running command with exit status 1,
// or kWrongUse where the error is of the user's input. Only for use inside a command's callback.
[[noreturn]] void FailCommand(const Error& error);

// Runs the command line: parses it, then the callbacks of its command. Returns the exit status: 0,
// also for --help; what FailCommand says; kWrongUse where the command line itself is wrong.
int RunCommandLine(CLI::App& app, int argc, const char* const* argv);

// The command `name` that only holds others ("bench" of "bench serve"); made by whoever asks first.
CLI::App* CommandGroup(CLI::App& app, const std::string& name, const std::string& description);

// The built-in catalogue with what the files add; a bad file fails the command.
Catalog CatalogWith(const std::vector<std::string>& files);

void AddBenchEngineCommand(CLI::App& app);
void AddBenchServeCommand(CLI::App& app);
void AddCalcCommand(CLI::App& app);
void AddCatalogCommand(CLI::App& app);
void AddClusterCommand(CLI::App& app);  // divisi cluster status | drain | undrain | role
void AddExplainRouteCommand(CLI::App& app);
void AddGatewayCommand(CLI::App& app);
void AddKvEventsCommand(CLI::App& app);
void AddModelCommand(CLI::App& app);  // divisi model inspect | synth
void AddPlanCommand(CLI::App& app);
void AddServeCommand(CLI::App& app);
void AddSimulateCommand(CLI::App& app);
void AddStoreCommand(CLI::App& app);
void AddUpCommand(CLI::App& app);
void AddWorkerCommand(CLI::App& app);

}  // namespace divisi
