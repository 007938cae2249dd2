#include "divisi/cli/parent_death.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "divisi/core/format.h"

namespace divisi {
namespace {

constexpr const char* kVariable = "DIVISI_PARENT";

}  // namespace

std::vector<std::string> EnvironmentOfChild() {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with(Format("{}=", kVariable))) all.emplace_back(*entry);
  }
  all.push_back(Format("{}={}", kVariable, getpid()));
  return all;
}

void DieWithParent() {
  const char* parent = std::getenv(kVariable);
  if (parent == nullptr) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (Format("{}", getppid()) != parent) _exit(128 + SIGKILL);
  unsetenv(kVariable);
}

}  // namespace divisi
