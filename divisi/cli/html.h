// Pieces of HTML pages. Whatever comes from a user passes through HtmlText.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace divisi {

// Text that shows as it is, between tags and within quoted attributes. Control characters, which
// HTML and SVG forbid, show as U+FFFD.
std::string HtmlText(std::string_view text);

// At most `most` characters, the last of them an ellipsis where some are left out. Not escaped.
std::string Shortened(std::string_view text, size_t most);

// A table of plain texts. The first cell of each row is its heading.
struct HtmlTable {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  size_t marked_column = 0;  // Emphasised; 0: none.
  bool prose = false;        // Cells are sentences, not numbers.
};
std::string HtmlOf(const HtmlTable& table);

}  // namespace divisi
