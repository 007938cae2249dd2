// Everything that is known by name: hardware and models. The built-in entries are YAML files of
// this folder, compiled in; a user's files add to them or replace them.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "divisi/catalog/hardware.h"
#include "divisi/catalog/model_spec.h"
#include "divisi/core/result.h"

namespace divisi {

// A figure as its file gives it: for showing where it comes from.
struct CatalogFigure {
  std::string key;     // "bf16", "memory_bandwidth"
  std::string text;    // "312 TFLOP/s"
  std::string source;  // May be empty in a user's file, never in ours.
};

template <typename Spec>
struct CatalogEntry {
  std::string name;
  Spec spec;
  std::vector<CatalogFigure> figures;
};

// What a catalogue holds, by normalised name; an alias is a second key of the same entry.
template <typename Spec>
using CatalogMap = std::map<std::string, CatalogEntry<Spec>>;
struct CatalogEntries {
  CatalogMap<CardSpec> cards;
  CatalogMap<ProcessorSpec> processors;
  CatalogMap<LinkSpec> links;
  CatalogMap<DiskSpec> disks;
  CatalogMap<ServerSpec> servers;
  CatalogMap<ModelSpec> models;
};

class Catalog {
 public:
  // "A100 80GB SXM" and "a100-80gb-sxm" are "a10080gbsxm".
  static std::string Normalised(std::string_view name);

  // The compiled-in entries.
  static Catalog BuiltIn();

  // Adds the entries of a YAML file (docs/planner.md, "Catalogue files"); those of the same name
  // are replaced. On error nothing was added. Errors: kInvalidArgument with file, line, key, what
  // was expected, and the nearest known key.
  Result<void> Add(std::string_view yaml, std::string_view file);

  // Entries by name: case, spaces and dashes do not matter ("A100 80GB SXM", "a100-80gb-sxm").
  // Errors: kNotFound, with the nearest name and how to list them.
  Result<const CardSpec*> Card(std::string_view name) const;
  Result<const ProcessorSpec*> Processor(std::string_view name) const;
  Result<const LinkSpec*> Link(std::string_view name) const;
  Result<const DiskSpec*> Disk(std::string_view name) const;
  Result<const ServerSpec*> Server(std::string_view name) const;
  Result<const ModelSpec*> Model(std::string_view name) const;

  // "cards", "processors", "links", "disks", "servers", "models".
  static const std::vector<std::string>& Kinds();
  // Names of a kind, in order, without aliases. Empty for an unknown kind.
  std::vector<std::string> Names(std::string_view kind) const;
  // The entry's own name, for it or an alias. Errors: kNotFound for an unknown kind or entry, with
  // the nearest.
  Result<std::string> NameOf(std::string_view kind, std::string_view name) const;
  // The figures of an entry, under its name or an alias, in the order of CardSpec and its like; of
  // a model, its config's keys. Empty for an unknown one.
  std::vector<CatalogFigure> Figures(std::string_view kind, std::string_view name) const;

 private:
  CatalogEntries entries_;
};

}  // namespace divisi
