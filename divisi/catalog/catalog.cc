#include "divisi/catalog/catalog.h"

#include <algorithm>

#include "divisi/catalog/builtin_files.h"
#include "divisi/catalog/catalog_file.h"
#include "divisi/core/nearest.h"

namespace divisi {
namespace {

// Those of the entries themselves, not of their aliases.
template <typename Spec>
std::vector<std::string> NamesOf(const CatalogMap<Spec>& entries) {
  std::vector<std::string> names;
  for (const auto& [key, entry] : entries) {
    if (key == Catalog::Normalised(entry.name)) names.push_back(entry.name);
  }
  return names;
}

// kind: "card", in messages.
template <typename Spec>
Result<const CatalogEntry<Spec>*> FindEntry(const CatalogMap<Spec>& entries, std::string_view kind,
                                            std::string_view name) {
  const auto found = entries.find(Catalog::Normalised(name));
  if (found != entries.end()) return &found->second;
  return Error{Code::kNotFound,
               Format("there is no {} '{}' in the catalogue{}; 'divisi catalog {}s' lists them",
                      kind, name.substr(0, 60), DidYouMean(name, NamesOf(entries)), kind)};
}

template <typename Spec>
Result<const Spec*> Lookup(const CatalogMap<Spec>& entries, std::string_view kind,
                           std::string_view name) {
  ASSIGN_OR_RETURN(const CatalogEntry<Spec>* entry, FindEntry(entries, kind, name));
  return &entry->spec;
}

// A replaced entry goes with its aliases.
template <typename Spec>
void Merge(CatalogMap<Spec> added, CatalogMap<Spec>& entries) {
  for (const auto& one : added) {
    const std::string name = Catalog::Normalised(one.second.name);
    std::erase_if(entries, [&](const auto& old) {
      return old.first == one.first || Catalog::Normalised(old.second.name) == name;
    });
  }
  entries.merge(added);
}

// f(the entries of a kind), or `unknown` for an unknown kind.
template <typename F, typename R>
R OfKind(const CatalogEntries& entries, std::string_view kind, const F& f, R unknown) {
  if (kind == "cards") return f(entries.cards);
  if (kind == "processors") return f(entries.processors);
  if (kind == "links") return f(entries.links);
  if (kind == "disks") return f(entries.disks);
  if (kind == "servers") return f(entries.servers);
  if (kind == "models") return f(entries.models);
  return unknown;
}

}  // namespace

std::string Catalog::Normalised(std::string_view name) {
  std::string key;
  for (const char c : name) {
    if (c == ' ' || c == '-' || c == '_') continue;
    key += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  return key;
}

Catalog Catalog::BuiltIn() {
  Catalog catalog;
  for (const BuiltInFile& file : BuiltInFiles()) {
    const auto added = catalog.Add(file.text, file.name);
    CHECK(added.ok(), "{}", added.error().message);
  }
  return catalog;
}

Result<void> Catalog::Add(std::string_view yaml, std::string_view file) {
  ASSIGN_OR_RETURN(CatalogEntries added, ReadCatalogFile(yaml, file, entries_));
  Merge(std::move(added.cards), entries_.cards);
  Merge(std::move(added.processors), entries_.processors);
  Merge(std::move(added.links), entries_.links);
  Merge(std::move(added.disks), entries_.disks);
  Merge(std::move(added.servers), entries_.servers);
  Merge(std::move(added.models), entries_.models);
  return {};
}

Result<const CardSpec*> Catalog::Card(std::string_view name) const {
  return Lookup(entries_.cards, "card", name);
}
Result<const ProcessorSpec*> Catalog::Processor(std::string_view name) const {
  return Lookup(entries_.processors, "processor", name);
}
Result<const LinkSpec*> Catalog::Link(std::string_view name) const {
  return Lookup(entries_.links, "link", name);
}
Result<const DiskSpec*> Catalog::Disk(std::string_view name) const {
  return Lookup(entries_.disks, "disk", name);
}
Result<const ServerSpec*> Catalog::Server(std::string_view name) const {
  return Lookup(entries_.servers, "server", name);
}
Result<const ModelSpec*> Catalog::Model(std::string_view name) const {
  return Lookup(entries_.models, "model", name);
}

const std::vector<std::string>& Catalog::Kinds() {
  static const std::vector<std::string> kKinds = {"cards", "processors", "links",
                                                  "disks", "servers",    "models"};
  return kKinds;
}

std::vector<std::string> Catalog::Names(std::string_view kind) const {
  const auto names = [](const auto& entries) { return NamesOf(entries); };
  return OfKind(entries_, kind, names, std::vector<std::string>());
}

Result<std::string> Catalog::NameOf(std::string_view kind, std::string_view name) const {
  const auto own_name = [&](const auto& entries) -> Result<std::string> {
    ASSIGN_OR_RETURN(const auto* entry, FindEntry(entries, kind.substr(0, kind.size() - 1), name));
    return entry->name;
  };
  const Error unknown = {Code::kNotFound, Format("the catalogue has no '{}'{}", kind.substr(0, 60),
                                                 DidYouMean(kind, Kinds()))};
  return OfKind(entries_, kind, own_name, Result<std::string>(unknown));
}

std::vector<CatalogFigure> Catalog::Figures(std::string_view kind, std::string_view name) const {
  const auto figures = [&](const auto& entries) {
    const auto found = entries.find(Normalised(name));
    return found == entries.end() ? std::vector<CatalogFigure>() : found->second.figures;
  };
  return OfKind(entries_, kind, figures, std::vector<CatalogFigure>());
}

}  // namespace divisi
