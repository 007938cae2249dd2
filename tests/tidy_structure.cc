// Rules about how files depend on each other and on the world.
#include <algorithm>
#include <array>
#include <set>
#include <span>

#include "divisi/core/format.h"
#include "tests/tidy_lines.h"
#include "tests/tidy_rules.h"

namespace divisi {
namespace {

using Names = std::vector<std::string_view>;

// Directory of divisi/ to the directories that it may include, besides itself.
const std::map<std::string_view, Names>& AllowedLayers() {
  static const std::map<std::string_view, Names> kAllowed = {
      {"core", {}},
      {"catalog", {"core"}},
      {"net", {"core"}},
      {"plan", {"core", "catalog"}},
      {"model", {"core", "catalog"}},
      {"kv", {"core", "catalog", "net", "plan"}},
      {"experts", {"core", "catalog", "net", "plan"}},
      {"engine", {"core", "catalog", "plan", "model", "kv", "experts"}},
      {"control", {"core", "catalog", "net", "plan", "kv", "engine"}},
      {"serve", {"core", "catalog", "net", "plan", "model", "kv", "experts", "engine", "control"}},
      {"sim", {"core", "catalog", "net", "plan", "kv", "experts", "engine", "control", "serve"}},
      {"cli",
       {"core", "catalog", "net", "plan", "model", "kv", "experts", "engine", "control", "serve",
        "sim"}},
  };
  return kAllowed;
}

// "kv" of "divisi/kv/block_pool.h"; empty elsewhere.
std::string_view LayerOf(std::string_view path) {
  constexpr std::string_view kRoot = "divisi/";
  if (!path.starts_with(kRoot)) return {};
  path.remove_prefix(kRoot.size());
  const size_t slash = path.find('/');
  return slash == path.npos ? std::string_view() : path.substr(0, slash);
}

struct Include {
  size_t line;
  bool angled;
  std::string path;
};

std::vector<Include> IncludesOf(std::string_view text) {
  std::vector<Include> includes;
  const auto lines = Lines(text);
  for (size_t i = 0; i < lines.size(); ++i) {
    constexpr std::string_view kDirective = "#include ";
    if (!lines[i].starts_with(kDirective)) continue;
    const std::string_view rest = lines[i].substr(kDirective.size());
    const bool angled = rest.starts_with('<');
    const size_t end = rest.find(angled ? '>' : '"', 1);
    if (end == rest.npos) continue;
    includes.push_back({i + 1, angled, std::string(rest.substr(1, end - 1))});
  }
  return includes;
}

struct Banned {
  std::string_view call;
  std::string_view instead;
  Names allowed;  // Path prefixes.
};

const std::vector<Banned>& BannedCalls() {
  static const std::vector<Banned> kBanned = {
      {"std::rand", "a Random (core/random.h)", {}},
      {"srand", "a Random (core/random.h)", {}},
      {"std::random_device", "a Random (core/random.h)", {"divisi/core/random.cc"}},
      // The engine's loop and the HTTP front are drivers: they own threads.
      {"std::thread",
       "a ThreadPool (core/thread_pool.h), or an event",
       {"divisi/core/", "divisi/net/", "divisi/cli/", "divisi/serve/gateway", "divisi/serve/http_",
        "divisi/engine/engine.", "divisi/control/frame_connection", "divisi/control/page_carrier",
        "divisi/control/etcd_directory", "divisi/control/step_thread",
        "divisi/control/store_client", "divisi/control/page_export", "divisi/kv/event_socket",
        "divisi/kv/redis_store",
        // Reads and writes of pages that may hang.
        "divisi/kv/tier_io.",
        // Stands for a pool's thread in tests.
        "divisi/kv/remote_pages_fixture"}},
      {"std::async", "a ThreadPool (core/thread_pool.h)", {}},
      {"sleep_for", "an event with its time", {"divisi/core/", "divisi/net/", "divisi/cli/"}},
      {"system_clock", "UnixSeconds (core/clock.h)", {"divisi/core/clock.cc"}},
      // Boost.Asio's timers count in it.
      {"steady_clock", "a Clock (core/clock.h)", {"divisi/core/clock.cc", "divisi/serve/http_"}},
      {"std::cout", "the log (core/log.h), or the command's output", {"divisi/cli/"}},
      {"std::cerr", "the log (core/log.h)", {"divisi/cli/", "divisi/core/"}},
      {"assert", "CHECK (core/check.h)", {}},
      // CLI11 ends a command by exception.
      {"throw", "Result (core/result.h)", {"divisi/cli/"}},
      {"using namespace std", "the names that are meant", {}},
  };
  return kBanned;
}

struct Library {
  std::string_view name;
  Names prefixes;  // Of its headers' paths.
  Names allowed;   // Path prefixes that may include it besides one source file.
};

const std::vector<Library>& ThirdParty() {
  static const std::vector<Library> kLibraries = {
      {"fmt", {"fmt/"}, {"divisi/core/format.h"}},
      {"simdjson", {"simdjson"}, {}},
      {"PCRE2", {"pcre2"}, {}},
      {"utf8proc", {"utf8proc"}, {}},
      {"OpenSSL", {"openssl/"}, {}},
      {"yaml-cpp", {"yaml-cpp/"}, {}},
      {"oneDNN", {"dnnl", "oneapi/"}, {}},
      {"UCX", {"ucp/", "uct/", "ucs/"}, {}},
      {"hiredis", {"hiredis/"}, {}},
      {"xxHash", {"xxh"}, {}},
      {"ZeroMQ", {"zmq"}, {"divisi/kv/event_socket"}},
      // Kernels are compiled once per instruction set, and choose it by Highway.
      {"Highway", {"hwy/"}, {"divisi/model/ops"}},
      {"intrinsics", {"immintrin"}, {"divisi/model/ops"}},
      // The HTTP server and the load generator are coroutines in several files.
      {"Boost",
       {"boost/"},
       {"divisi/serve/http_", "divisi/serve/gateway", "divisi/control/frame_connection",
        "divisi/control/etcd_directory", "divisi/cli/"}},
      {"CLI11", {"CLI/"}, {"divisi/cli/"}},
  };
  return kLibraries;
}

bool StartsWithAny(std::string_view path, const Names& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return path.starts_with(prefix); });
}

std::string Folder(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? "" : std::string(path.substr(0, slash + 1));
}

// Lines [first, last] joined are not needed: a macro's name stands behind #define.
std::string_view MacroOf(std::string_view line) {
  constexpr std::string_view kDefine = "#define ";
  if (!line.starts_with(kDefine)) return {};
  line.remove_prefix(kDefine.size());
  return line.substr(0, line.find_first_of(" ("));
}

// The path with "." and ".." taken out.
std::string Normal(const std::string& path) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    if (part == ".." && !parts.empty()) {
      parts.pop_back();
    } else if (!part.empty() && part != ".") {
      parts.push_back(part);
    }
    begin = end + 1;
  }
  std::string normal;
  for (const std::string& part : parts) normal += (normal.empty() ? "" : "/") + part;
  return normal;
}

bool Exists(const TidyTree& tree, const std::string& path) {
  if (path.empty() || tree.contains(path)) return true;
  const auto below = tree.lower_bound(path + "/");
  return below != tree.end() && below->first.starts_with(path + "/");
}

}  // namespace

TidyFindings CheckLayers(const TidyTree& tree) {
  TidyFindings findings;
  for (const auto& [path, text] : tree) {
    const std::string_view from = LayerOf(path);
    if (from.empty() || !IsCpp(path) || IsTestCode(path)) continue;
    const auto allowed = AllowedLayers().find(from);
    if (allowed == AllowedLayers().end()) {
      findings.push_back(Format("{}:1: '{}' is no part of the design", path, from));
      continue;
    }
    for (const Include& include : IncludesOf(text)) {
      const std::string_view to = LayerOf(include.path);
      const auto& names = allowed->second;
      if (to.empty() || to == from || std::find(names.begin(), names.end(), to) != names.end()) {
        continue;
      }
      findings.push_back(Format("{}:{}: {} may not include {}", path, include.line, from, to));
    }
  }
  return findings;
}

TidyFindings CheckBannedCalls(const TidyTree& tree) {
  TidyFindings findings;
  for (const auto& [path, text] : tree) {
    if (!IsCpp(path) || IsTestCode(path)) continue;
    const std::string code = CodeOnly(text);
    const auto lines = Lines(code);
    for (const Banned& banned : BannedCalls()) {
      if (StartsWithAny(path, banned.allowed)) continue;
      for (size_t i = 0; i < lines.size(); ++i) {
        if (!HasWord(lines[i], banned.call)) continue;
        findings.push_back(Format("{}:{}: {}; use {}", path, i + 1, banned.call, banned.instead));
      }
    }
  }
  return findings;
}

TidyFindings CheckThirdParty(const TidyTree& tree) {
  TidyFindings findings;
  for (const Library& library : ThirdParty()) {
    std::string owner;
    for (const auto& [path, text] : tree) {
      if (!IsCpp(path) || IsTestCode(path) || StartsWithAny(path, library.allowed)) continue;
      for (const Include& include : IncludesOf(text)) {
        if (!include.angled || !StartsWithAny(include.path, library.prefixes)) continue;
        if (owner.empty() && path.ends_with(".cc")) owner = path;
        if (owner == path) continue;
        findings.push_back(Format("{}:{}: {} is included by one source file{}{}", path,
                                  include.line, library.name, owner.empty() ? "" : ": ", owner));
      }
    }
  }
  return findings;
}

TidyFindings CheckDeadFiles(const TidyTree& tree) {
  std::set<std::string> included;
  for (const auto& [path, text] : tree) {
    if (!IsCpp(path)) continue;
    for (const Include& include : IncludesOf(text)) included.insert(include.path);
  }
  TidyFindings findings;
  for (const auto& [path, text] : tree) {
    if (path.ends_with(".h") && !included.contains(path)) {
      findings.push_back(Format("{}:1: a header that nothing includes", path));
    }
    if (!path.ends_with(".cc")) continue;
    // Beside the source, or one folder up (tests/oracle).
    bool built = false;
    for (std::string folder = Folder(path); !built;
         folder = Folder(folder.substr(0, folder.size() - 1))) {
      const auto cmake = tree.find(folder + "CMakeLists.txt");
      const std::string name = path.substr(folder.size());
      built = cmake != tree.end() && HasWord(cmake->second, name);
      if (folder.empty()) break;
    }
    // The one that cmake/divisi.cmake adds to every fuzzer.
    const auto functions = tree.find("cmake/divisi.cmake");
    built = built || (functions != tree.end() && HasWord(functions->second, path));
    if (!built) findings.push_back(Format("{}:1: a source that no CMakeLists.txt names", path));
  }
  return findings;
}

TidyFindings CheckPreprocessor(const TidyTree& tree) {
  // Four, and the parts of ASSIGN_OR_RETURN; PCRE2 asks for its own before its header.
  constexpr std::array<std::string_view, 5> kMacros = {"CHECK", "DCHECK", "RETURN_IF_ERROR",
                                                       "ASSIGN_OR_RETURN", "PCRE2_CODE_UNIT_WIDTH"};
  TidyFindings findings;
  for (const auto& [path, text] : tree) {
    if (!IsCpp(path)) continue;
    const std::string code = CodeOnly(text);
    const auto lines = Lines(code);
    const bool header = path.ends_with(".h");
    bool once = false;
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::string_view line = Trimmed(lines[i]);
      if (line == "#pragma once") once = true;
      const std::string_view macro = MacroOf(line);
      if (!macro.empty() && !macro.starts_with("DIVISI_ASSIGN_OR_RETURN_") &&
          std::find(kMacros.begin(), kMacros.end(), macro) == kMacros.end()) {
        findings.push_back(Format("{}:{}: macro {}; use a function", path, i + 1, macro));
      }
      // check.h: DCHECK is empty in release builds.
      if (header && line.starts_with("#if") && path != "divisi/core/check.h") {
        findings.push_back(
            Format("{}:{}: a choice in a header; use a source file per platform", path, i + 1));
      }
    }
    if (header && !once) findings.push_back(Format("{}:1: no #pragma once", path));
  }
  return findings;
}

TidyFindings CheckLinks(const TidyTree& tree) {
  TidyFindings findings;
  for (const auto& [path, text] : tree) {
    if (!path.ends_with(".md")) continue;
    const auto lines = Lines(text);
    for (size_t i = 0; i < lines.size(); ++i) {
      for (size_t at = lines[i].find("]("); at != std::string_view::npos;
           at = lines[i].find("](", at + 1)) {
        const size_t end = lines[i].find_first_of(")# ", at + 2);
        if (end == std::string_view::npos) continue;
        const std::string target(lines[i].substr(at + 2, end - at - 2));
        if (target.find(':') != std::string::npos) continue;  // http:, mailto:
        if (target.empty() || Exists(tree, Normal(Folder(path) + target))) continue;
        findings.push_back(Format("{}:{}: a link to {}, which is not there", path, i + 1, target));
      }
    }
  }
  return findings;
}

}  // namespace divisi
