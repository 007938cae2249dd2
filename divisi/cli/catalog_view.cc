#include "divisi/cli/catalog_view.h"

#include <algorithm>

#include "divisi/core/nearest.h"

namespace divisi {
namespace {

// "card" stands for "cards".
Result<std::string> KindOf(std::string_view given) {
  for (const std::string& kind : Catalog::Kinds()) {
    if (given == kind || given == kind.substr(0, kind.size() - 1)) return kind;
  }
  return Error{Code::kNotFound, Format("the catalogue has no '{}'{}", given.substr(0, 60),
                                       DidYouMean(given, Catalog::Kinds()))};
}

Json NamesJson(const Catalog& catalog, const std::string& kind) {
  const std::vector<std::string> names = catalog.Names(kind);
  return Json::Array(names.begin(), names.end());
}

Result<Json> EntryJson(const Catalog& catalog, const std::string& kind, const std::string& asked) {
  ASSIGN_OR_RETURN(const std::string name, catalog.NameOf(kind, asked));
  Json figures = Json::MakeArray();
  for (const CatalogFigure& figure : catalog.Figures(kind, name)) {
    figures.Append(
        Json::Object{{"key", figure.key}, {"text", figure.text}, {"source", figure.source}});
  }
  Json json = Json::Object{{"kind", kind}, {"name", name}, {"figures", std::move(figures)}};
  if (kind == "models") {
    const ModelSpec& spec = **catalog.Model(name);
    json.Set("derived",
             Json::Object{{"parameters", spec.Parameters()},
                          {"active_parameters", spec.ActiveParameters()},
                          {"kv_bytes_per_token", spec.KvBytesPerToken(DataType::kBf16).value}});
  }
  return json;
}

std::string EntryText(const Json& entry) {
  size_t key_width = 0;
  size_t text_width = 0;
  const Json::Array& figures = entry.Find("figures")->as_array();
  for (const Json& figure : figures) {
    key_width = std::max(key_width, figure.Find("key")->as_string().size());
    text_width = std::max(text_width, figure.Find("text")->as_string().size());
  }
  text_width = std::min<size_t>(text_width, 24);  // Lists in a model's config are longer.
  std::string text = entry.Find("name")->as_string() + "\n";
  std::string last_source;
  for (const Json& figure : figures) {
    const std::string& source = figure.Find("source")->as_string();
    text +=
        Format("  {:<{}}  {:<{}}  {}\n", figure.Find("key")->as_string(), key_width,
               figure.Find("text")->as_string(), text_width, source == last_source ? "\"" : source);
    last_source = source;
  }
  const Json* derived = entry.Find("derived");
  if (derived == nullptr) return text;
  text += "derived\n";
  for (const auto& [key, value] : derived->as_object()) {
    text += Format("  {:<{}}  {}\n", key, key_width, value.as_int());
  }
  return text;
}

}  // namespace

Result<Json> CatalogJson(const Catalog& catalog, const CatalogQuery& query) {
  if (query.kind.empty()) {
    Json json = Json::MakeObject();
    for (const std::string& kind : Catalog::Kinds()) json.Set(kind, NamesJson(catalog, kind));
    return json;
  }
  ASSIGN_OR_RETURN(const std::string kind, KindOf(query.kind));
  if (!query.name.empty()) return EntryJson(catalog, kind, query.name);
  return Json(Json::Object{{"kind", kind}, {"names", NamesJson(catalog, kind)}});
}

Result<std::string> CatalogText(const Catalog& catalog, const CatalogQuery& query) {
  ASSIGN_OR_RETURN(const Json json, CatalogJson(catalog, query));
  if (!query.name.empty()) return EntryText(json);
  std::string text;
  if (const Json* names = json.Find("names"); names != nullptr) {
    for (const Json& name : names->as_array()) text += name.as_string() + "\n";
    return text;
  }
  for (const auto& [kind, names] : json.as_object()) {
    text += kind + "\n";
    for (const Json& name : names.as_array()) text += Format("  {}\n", name.as_string());
  }
  return text;
}

}  // namespace divisi
