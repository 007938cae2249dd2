// A bar for long work, on a terminal only: where standard error is a file or a pipe, nothing is
// written until the end.
#pragma once

#include <string>

#include "divisi/core/units.h"

namespace divisi {

class ProgressBar {
 public:
  explicit ProgressBar(std::string title);
  ~ProgressBar();  // Clears the line.
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Show(Bytes done, Bytes total);

 private:
  std::string title_;
  bool terminal_;
  int shown_percent_ = -1;
};

}  // namespace divisi
