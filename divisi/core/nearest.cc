#include "divisi/core/nearest.h"

#include <algorithm>
#include <cctype>

#include "divisi/core/format.h"

namespace divisi {
namespace {

char Lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

// Levenshtein's distance, by rows.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (Lower(a[i - 1]) == Lower(b[j - 1]) ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string DidYouMean(std::string_view wrong, const std::vector<std::string>& names,
                       std::string_view prefix) {
  constexpr size_t kMostCompared = 100;  // A longer name is no slip, and costs its square.
  constexpr size_t kMostListed = 12;
  if (wrong.size() > 1 && wrong.size() <= kMostCompared) {
    constexpr size_t kMostMeant = 3;
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      if (name.size() > wrong.size() && Distance(wrong, name.substr(0, wrong.size())) == 0) {
        longer.push_back(Format("{}{}", prefix, name));
      }
    }
    if (!longer.empty() && longer.size() <= kMostMeant) {
      std::string list = longer.front();
      for (size_t i = 1; i < longer.size(); ++i) list += " or " + longer[i];
      return Format("; did you mean {}?", list);
    }
  }
  const std::string* nearest = nullptr;
  size_t least = wrong.size() / 3 + 2;
  for (const std::string& name : names) {
    if (wrong.size() > kMostCompared) break;
    const size_t distance = Distance(wrong, name);
    if (distance >= least) continue;
    least = distance;
    nearest = &name;
  }
  if (nearest != nullptr) return Format("; did you mean {}{}?", prefix, *nearest);
  std::string list;
  for (size_t i = 0; i < names.size() && i < kMostListed; ++i) {
    list += Format("{}{}{}", i == 0 ? "; known are " : ", ", prefix, names[i]);
  }
  return list + (names.size() > kMostListed ? ", ..." : "");
}

}  // namespace divisi
