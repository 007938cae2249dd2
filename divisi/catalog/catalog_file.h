// Reads one catalogue file: the built-in ones and those that users write, by the same code.
// The format is in docs/planner.md, "Catalogue files".
#pragma once

#include "divisi/catalog/catalog.h"

namespace divisi {

// `known` has the entries that the file's servers may name besides its own.
// Errors: those of Catalog::Add.
Result<CatalogEntries> ReadCatalogFile(std::string_view yaml, std::string_view file,
                                       const CatalogEntries& known);

}  // namespace divisi
