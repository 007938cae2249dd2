// divisi up: a cluster of one machine, its gateway and workers as child processes under one log.
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "divisi/cli/cluster_file.h"
#include "divisi/cli/commands.h"
#include "divisi/cli/line_cutter.h"
#include "divisi/cli/parent_death.h"
#include "divisi/cli/stop_signal.h"
#include "divisi/core/clock.h"
#include "divisi/core/file.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

constexpr size_t kMostFileBytes = size_t{1} << 20;
// A worker that ends is started again after this, doubled each time up to the bound.
constexpr Seconds kFirstRestart{0.5};
constexpr Seconds kMostRestart{10};
// A life that lasted this long counts as a start that went well.
constexpr Seconds kHealthy{10};
// Of one child's output at a time: more than a pipe holds.
constexpr int kMostReads = 64;
// A process takes so long to end beside what it may drain.
constexpr Seconds kStopMargin{10};

// One child, and what it writes, line by line behind its name.
class Child {
 public:
  explicit Child(ClusterProcess process) : process_(std::move(process)) {}

  // False where it could not be: errno says why.
  bool Start(Seconds now) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;  // This process blocks the signals that the child waits for.
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    // A group of its own: a terminal's Ctrl-C goes to this process, which stops all in order.
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    std::vector<char*> argv = {const_cast<char*>("divisi")};
    for (std::string& arg : process_.args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    std::vector<std::string> variables = EnvironmentOfChild();
    std::vector<char*> environment;
    for (std::string& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
    const int failed = posix_spawn(&pid_, "/proc/self/exe", &actions, &attributes, argv.data(),
                                   environment.data());
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    close(ends[1]);
    if (failed != 0) {
      close(ends[0]);
      errno = failed;
      pid_ = -1;
      return false;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    output_ = ends[0];
    started_ = now;
    return true;
  }

  // Prints whole lines of what there is.
  void Drain() {
    char buffer[4096];
    for (int i = 0; i < kMostReads && output_ >= 0; ++i) {
      const ssize_t got = read(output_, buffer, sizeof buffer);
      if (got < 0) break;
      if (got == 0) {
        CloseOutput();
        break;
      }
      for (const std::string& line : lines_.Take({buffer, static_cast<size_t>(got)})) Print(line);
    }
    std::fflush(stdout);
  }

  // True once it has ended; then it may be started again.
  bool Reap(Seconds now) {
    int status = 0;
    if (pid_ < 0 || waitpid(pid_, &status, WNOHANG) != pid_) return false;
    Drain();
    CloseOutput();
    pid_ = -1;
    exit_status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    StartLater(now);
    return true;
  }

  // After longer the more often it did not go well.
  void StartLater(Seconds now) {
    const bool healthy = now - started_ >= kHealthy;
    wait_ = healthy ? kFirstRestart : std::min(wait_ * 2, kMostRestart);
    restart_at_ = started_ = now + wait_;
  }

  void Signal(int number) const {
    if (pid_ > 0) kill(pid_, number);
  }
  bool running() const { return pid_ > 0; }
  bool Due(Seconds now) const { return pid_ < 0 && now >= restart_at_; }
  int output() const { return output_; }
  int exit_status() const { return exit_status_; }
  const std::string& name() const { return process_.name; }
  // After it was asked to stop: what it was told, and the rest of a process.
  Seconds patience() const { return process_.drain + kStopMargin; }

 private:
  void Print(const std::string& line) const {
    std::printf("[%s] %s\n", process_.name.c_str(), line.c_str());
  }
  // At its end, which poll would tell of again and again.
  void CloseOutput() {
    if (output_ < 0) return;
    close(output_);
    output_ = -1;
    if (const auto rest = lines_.End()) Print(*rest);
  }

  ClusterProcess process_;
  pid_t pid_ = -1;
  int output_ = -1;
  int exit_status_ = 0;
  LineCutter lines_;
  Seconds started_, restart_at_;
  Seconds wait_ = kFirstRestart * 0.5;
};

class Family {
 public:
  Family(const ClusterPlan& plan, const std::atomic<bool>& stop) : stop_(stop) {
    children_.emplace_back(plan.gateway);
    for (const ClusterProcess& store : plan.stores) children_.emplace_back(store);
    for (const ClusterProcess& worker : plan.workers) children_.emplace_back(worker);
  }

  // Until asked to stop, or the gateway has ended. The exit status.
  int Run() {
    for (Child& child : children_) {
      if (!child.Start(clock_.Now())) return Abandon(child, std::strerror(errno));
    }
    while (!stop_) {
      Wait(Seconds(0.2));
      for (Child& child : children_) {
        if (child.Reap(clock_.Now())) {
          std::printf("[up] %s ended with status %d\n", child.name().c_str(), child.exit_status());
          if (&child == &children_.front()) return Abandon(child, "the gateway ended");
          if (child.exit_status() == kWrongUse) {
            return Abandon(child, "it would end like this each time; what it said is above");
          }
        }
        if (child.Due(clock_.Now())) StartAgain(child);
      }
    }
    return End() ? 0 : 1;
  }

 private:
  void StartAgain(Child& child) {
    std::printf("[up] starting %s again\n", child.name().c_str());
    if (child.Start(clock_.Now())) return;
    std::printf("[up] %s was not started: %s\n", child.name().c_str(), std::strerror(errno));
    child.StartLater(clock_.Now());
  }

  int Abandon(const Child& child, const char* why) {
    std::fprintf(stderr, "divisi: %s: %s\n", child.name().c_str(), why);
    (void)End();
    return child.exit_status() != 0 ? child.exit_status() : 1;
  }

  void Wait(Seconds most) {
    std::vector<pollfd> fds;
    for (const Child& child : children_) {
      if (child.output() >= 0) fds.push_back({child.output(), POLLIN, 0});
    }
    (void)poll(fds.data(), fds.size(), static_cast<int>(most.value * 1000));
    for (Child& child : children_) child.Drain();
  }

  // The gateway first: it lets requests end while their workers are there. False when one of them
  // had to be killed.
  bool End() {
    children_.front().Signal(SIGTERM);
    bool all = Ended(children_.front(), clock_.Now());
    const Seconds asked = clock_.Now();
    for (Child& child : children_) child.Signal(SIGTERM);  // Once: a second ends it at once.
    for (Child& child : children_) all &= Ended(child, asked);
    return all;
  }

  // False where it had to be killed.
  bool Ended(Child& child, Seconds asked) {
    const Seconds give_up = asked + child.patience();
    bool killed = false;
    while (child.running()) {
      Wait(Seconds(0.05));
      for (Child& each : children_) each.Reap(clock_.Now());
      if (killed || clock_.Now() < give_up) continue;
      killed = true;
      std::printf("[up] %s did not end in %s: killed\n", child.name().c_str(),
                  HumanSeconds(child.patience()).c_str());
      child.Signal(SIGKILL);
    }
    return !killed;
  }

  const std::atomic<bool>& stop_;
  SteadyClock clock_;
  std::vector<Child> children_;
};

void Run(const std::string& file, const ClusterPorts& ports) {
  auto* signal = new StopSignal;  // For the process's life, as its header asks.
  const auto text = ReadFile(file, kMostFileBytes);
  if (!text) FailCommand(text.error());
  const auto plan = ReadClusterFile(*text, file, ports);
  if (!plan) FailCommand(plan.error());
  if (const int status = Family(*plan, signal->Serve()).Run(); status != 0)
    throw CLI::RuntimeError(status);
}

}  // namespace

void AddUpCommand(CLI::App& app) {
  struct Options {
    std::string file;
    ClusterPorts ports;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("up", "Start a cluster on this machine: a gateway and its workers");
  command->footer("Example:\n  divisi up examples/cluster/1p1d.yaml --port 8000");
  command->add_option("cluster", options->file, "YAML file")->required();
  command
      ->add_option("--port", options->ports.http, "The gateway's HTTP port, instead of the file's")
      ->check(CLI::Range(1, 65535));
  command
      ->add_option("--control-port", options->ports.control,
                   "The port that workers connect to, instead of the file's")
      ->check(CLI::Range(1, 65535));
  command->callback([options] { Run(options->file, options->ports); });
}

}  // namespace divisi
