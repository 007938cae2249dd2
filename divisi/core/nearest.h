// The known name that a wrong one was probably meant to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace divisi {

// "; did you mean PREFIXname?" for the name nearest to `wrong` by edit distance, case left aside,
// where it is near enough to be a slip; before that the names, up to three, that go on where
// `wrong` ends; otherwise "; known are a, b, c". Empty without names.
std::string DidYouMean(std::string_view wrong, const std::vector<std::string>& names,
                       std::string_view prefix = "");

}  // namespace divisi
