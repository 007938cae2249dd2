// Children that do not outlive the process that started them, however that ends.
#pragma once

#include <string>
#include <vector>

namespace divisi {

// The environment for a child that calls DieWithParent: this process's own, and who started it.
std::vector<std::string> EnvironmentOfChild();
// In a child with such an environment: it is killed when its parent's thread that started it has
// ended, or at once if that is so already. Nothing happens in other processes.
void DieWithParent();

}  // namespace divisi
