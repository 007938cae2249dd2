// What `divisi catalog` prints: the kinds, the names of a kind, or the figures of an entry.
#pragma once

#include <string>
#include <string_view>

#include "divisi/catalog/catalog.h"
#include "divisi/core/json.h"

namespace divisi {

// What is asked for. Empty: all kinds; all names of the kind.
struct CatalogQuery {
  std::string kind;  // "cards" or "card"
  std::string name;
};

// Without a kind: {kind: [names]}. With one: {kind, names}. With a name: {kind, name, figures:
// [{key, text, source}]}, and for a model "derived": {parameters, active_parameters,
// kv_bytes_per_token (bfloat16)}. Errors: those of Catalog::NameOf.
Result<Json> CatalogJson(const Catalog& catalog, const CatalogQuery& query);
// The same as lines.
Result<std::string> CatalogText(const Catalog& catalog, const CatalogQuery& query);

}  // namespace divisi
