// The rules of style that a machine can check, each a pure function from the tree's files to what
// breaks it. tidy_test.cc runs them over the repository and, with samples, shows that each can
// fail.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace divisi {

// Of what is in version control: path from the root, with '/', to the file's bytes.
using TidyTree = std::map<std::string, std::string>;
// "path:line: what is wrong and what to do instead".
using TidyFindings = std::vector<std::string>;

// C++ with comments and the insides of literals blanked; lines keep their numbers.
std::string CodeOnly(std::string_view text);

// Includes between the directories of divisi/ follow the one-way dependencies. Tests may use all.
TidyFindings CheckLayers(const TidyTree& tree);
// Files over 1000 lines fail; over 500 they need a reason in the list.
TidyFindings CheckFileLengths(const TidyTree& tree);
// Functions have at most 70 lines, from the brace that opens the body to the one that closes it.
TidyFindings CheckFunctionLengths(const TidyTree& tree);
// Lines of code have at most 100 columns; in tests, what literals and comments hold does not count.
TidyFindings CheckLineLengths(const TidyTree& tree);
// Calls that have a replacement in core, outside the places that may use them.
TidyFindings CheckBannedCalls(const TidyTree& tree);
// Each third-party library is included by one source file; exceptions are listed with a reason.
TidyFindings CheckThirdParty(const TidyTree& tree);
// Each source is built by a CMakeLists.txt beside it, each header is included by something.
TidyFindings CheckDeadFiles(const TidyTree& tree);
// Headers begin with #pragma once and choose nothing by platform; macros are those in the list.
TidyFindings CheckPreprocessor(const TidyTree& tree);
// Nothing above 1 MiB outside models/.
TidyFindings CheckLargeFiles(const TidyTree& tree);
// Relative links in Markdown lead to a file or folder of the tree.
TidyFindings CheckLinks(const TidyTree& tree);
// No leftover marks of unfinished work.
TidyFindings CheckLeftovers(const TidyTree& tree);

}  // namespace divisi
