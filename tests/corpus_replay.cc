// Feeds every file of a corpus directory to one fuzzer's entry, so that what fuzzers once found is
// tested in every build, with no libFuzzer: corpus_replay DIR.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "divisi/core/file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIR\n", argv[0]);
    return 2;
  }
  std::error_code error;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1], error)) {
    files.push_back(entry.path());
  }
  std::ranges::sort(files);
  if (files.empty()) {
    std::fprintf(stderr, "no corpus in %s\n", argv[1]);
    return 1;
  }
  for (const auto& file : files) {
    std::printf("%s\n", file.c_str());
    std::fflush(stdout);  // A crash leaves its file as the last line.
    const auto content = divisi::ReadFile(file, size_t{64} << 20);
    if (!content) {
      std::fprintf(stderr, "%s\n", content.error().message.c_str());
      return 1;
    }
    // A copy of just that length, so that a sanitizer sees a read beyond it.
    const std::vector<uint8_t> bytes(content->begin(), content->end());
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  return 0;
}
