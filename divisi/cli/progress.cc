#include "divisi/cli/progress.h"

#include <unistd.h>

#include <cstdio>

#include "divisi/core/format.h"

namespace divisi {

ProgressBar::ProgressBar(std::string title)
    : title_(std::move(title)), terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (terminal_ && shown_percent_ >= 0) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::Show(Bytes done, Bytes total) {
  const int percent = total.value > 0 ? static_cast<int>(100 * (done / total)) : 100;
  if (!terminal_ || percent == shown_percent_) return;
  shown_percent_ = percent;
  constexpr int kWidth = 30;
  const size_t filled = static_cast<size_t>(percent * kWidth / 100);
  std::fputs(Format("\r{} [{}{}] {:3}%  {} of {}\x1b[K", title_, std::string(filled, '#'),
                    std::string(kWidth - filled, '.'), percent, HumanBytes(done), HumanBytes(total))
                 .c_str(),
             stderr);
}

}  // namespace divisi
