#include "divisi/catalog/catalog_file.h"

#include "divisi/core/nearest.h"
#include "divisi/core/yaml_fields.h"

namespace divisi {
namespace {

constexpr int64_t kMostCards = 1024;  // In one server; the largest NVLink domains have 72.

// Reads the figures of one entry and notes where they come from. A figure is a value, or a map of
// `value` and `source`; the entry's own `source` stands for those that name none.
class FigureReader {
 public:
  FigureReader(YamlFields& fields, std::vector<CatalogFigure>& figures)
      : fields_(fields), figures_(figures) {
    source_ = fields.Find<std::string>("source").value_or("");
  }
  // The figures of a map inside the entry.
  FigureReader(YamlFields& inner, const FigureReader& outer, std::string prefix)
      : fields_(inner),
        figures_(outer.figures_),
        source_(outer.source_),
        prefix_(std::move(prefix)) {}

  template <typename T>
  T Get(std::string_view key, const YamlWant<T>& want = {}) {
    const YamlNode* node = fields_.Node(key);
    if (node == nullptr || !node->is_map()) {
      if (node != nullptr) Note(key, node->text, source_);
      return fields_.Get<T>(key, want);
    }
    T value{};
    fields_.FindMap(key, [&](YamlFields& figure) {
      value = figure.Get<T>("value", want);
      const std::string source = figure.Find<std::string>("source").value_or(source_);
      const YamlNode* text = figure.Node("value");
      Note(key, text == nullptr ? "" : text->text, source);
    });
    return value;
  }
  template <typename T>
  T GetOr(std::string_view key, T fallback) {
    return Get<T>(key, {.fallback = std::move(fallback)});
  }

  void Note(std::string_view key, std::string text, const std::string& source) {
    figures_.push_back({prefix_ + std::string(key), std::move(text), source});
  }
  const std::string& source() const { return source_; }

 private:
  YamlFields& fields_;
  std::vector<CatalogFigure>& figures_;
  std::string source_;
  std::string prefix_;
};

CardSpec ReadCard(YamlFields&, FigureReader& figures) {
  CardSpec card;
  card.bf16_peak = figures.Get<FlopsPerSecond>("bf16", {.above_zero = true});
  card.fp8_peak = figures.GetOr("fp8", FlopsPerSecond(0));
  card.memory_bandwidth = figures.Get<BytesPerSecond>("memory_bandwidth", {.above_zero = true});
  card.memory = figures.Get<Bytes>("memory", {.above_zero = true});
  card.nvlink = figures.GetOr("nvlink", BytesPerSecond(0));
  card.pcie = figures.GetOr("pcie", BytesPerSecond(0));
  return card;
}

ProcessorSpec ReadProcessor(YamlFields& fields, FigureReader& figures) {
  ProcessorSpec processor;
  fields.GetMap("kernels", [&](YamlFields& kernels) {
    FigureReader inner(kernels, figures, "kernels.");
    for (const std::string& name : kernels.Keys()) {
      processor.kernels[name] = inner.Get<FlopsPerSecond>(name, {.above_zero = true});
    }
    if (processor.kernels.empty()) kernels.FailHere("expected at least one kernel and its rate");
  });
  processor.local_bandwidth = figures.Get<BytesPerSecond>("local_bandwidth", {.above_zero = true});
  processor.remote_bandwidth = figures.GetOr("remote_bandwidth", BytesPerSecond(0));
  processor.memory = figures.GetOr("memory", Bytes(0));
  return processor;
}

LinkSpec ReadLink(YamlFields&, FigureReader& figures) {
  LinkSpec link;
  link.bandwidth = figures.Get<BytesPerSecond>("bandwidth", {.above_zero = true});
  link.launch = figures.GetOr("launch", Seconds(0));
  return link;
}

DiskSpec ReadDisk(YamlFields&, FigureReader& figures) {
  DiskSpec disk;
  disk.capacity = figures.Get<Bytes>("capacity", {.above_zero = true});
  disk.read = figures.Get<BytesPerSecond>("read", {.above_zero = true});
  disk.write = figures.Get<BytesPerSecond>("write", {.above_zero = true});
  disk.writes_per_day = figures.GetOr("writes_per_day", 0.0);
  disk.endurance_years = figures.GetOr("endurance_years", 0.0);
  return disk;
}

// Reads entries of all kinds, servers last, since they name the others.
class FileReader {
 public:
  explicit FileReader(const CatalogEntries& known) : known_(known) {}

  void Read(YamlFields& top) {
    ReadKind(top, "cards", added_.cards, ReadCard);
    ReadKind(top, "processors", added_.processors, ReadProcessor);
    ReadKind(top, "links", added_.links, ReadLink);
    ReadKind(top, "disks", added_.disks, ReadDisk);
    ReadKind(top, "models", added_.models, ReadModel);
    ReadKind(top, "servers", added_.servers, [this](YamlFields& fields, FigureReader& figures) {
      return ReadServer(fields, figures);
    });
  }
  CatalogEntries Take() && { return std::move(added_); }

 private:
  template <typename Spec, typename Reader>
  void ReadKind(YamlFields& top, std::string_view kind, CatalogMap<Spec>& entries,
                const Reader& reader) {
    top.EachNamed(kind, [&](const std::string& name, YamlFields& fields) {
      std::vector<std::string> names = fields.GetList<std::string>("aliases");
      names.insert(names.begin(), name);
      CatalogEntry<Spec> entry{.name = name};
      FigureReader figures(fields, entry.figures);
      entry.spec = reader(fields, figures);
      // A model has no name of its own.
      if constexpr (requires { entry.spec.name; }) entry.spec.name = name;
      for (const std::string& each : names) {
        const std::string key = Catalog::Normalised(each);
        if (key.empty()) fields.FailHere("a name needs letters or digits");
        if (!entries.emplace(key, entry).second) {
          fields.FailHere(Format("the name '{}' is another entry's already", each));
        }
      }
    });
  }

  static ModelSpec ReadModel(YamlFields& fields, FigureReader& figures) {
    const YamlNode* config = fields.Node("config");
    if (config == nullptr || !config->is_map()) {
      fields.Fail("config", "expected the keys of a Hugging Face config.json");
      return {};
    }
    const Json json = YamlToJson(*config);
    for (const YamlNode& field : config->children) {
      const bool plain = field.is_scalar();
      figures.Note(field.key, plain ? field.text : YamlToJson(field).Dump(), figures.source());
    }
    auto spec = ParseModelSpec(json);
    if (!spec) {
      fields.Fail("config", spec.error().message);
      return {};
    }
    return std::move(spec).value();
  }

  ServerSpec ReadServer(YamlFields& fields, FigureReader& figures) {
    ServerSpec server;
    server.card = figures.Get<std::string>("card");
    CheckName(fields, "card", server.card, added_.cards, known_.cards);
    server.cards = Count(figures, "cards", 1);
    server.host_memory = figures.GetOr("host_memory", Bytes(0));
    if (fields.Has("disk")) {
      server.disk = figures.Get<std::string>("disk");
      CheckName(fields, "disk", server.disk, added_.disks, known_.disks);
      server.disks = Count(figures, "disks", 1);
    }
    if (fields.Has("nic")) {
      server.nic = figures.Get<std::string>("nic");
      CheckName(fields, "nic", server.nic, added_.links, known_.links);
      server.nics = Count(figures, "nics", 1);
    }
    return server;
  }
  static int Count(FigureReader& figures, std::string_view key, int64_t least) {
    return static_cast<int>(figures.Get<int64_t>(key, {.least = least, .most = kMostCards}));
  }

  template <typename Spec>
  static void CheckName(YamlFields& fields, std::string_view key, const std::string& name,
                        const CatalogMap<Spec>& added, const CatalogMap<Spec>& known) {
    const std::string wanted = Catalog::Normalised(name);
    if (!fields.ok() || added.contains(wanted) || known.contains(wanted)) return;
    std::vector<std::string> names;
    for (const auto* entries : {&added, &known}) {
      for (const auto& [key, entry] : *entries) names.push_back(entry.name);
    }
    fields.Fail(key, Format("there is no '{}'{}", name, DidYouMean(name, names)));
  }

  const CatalogEntries& known_;
  CatalogEntries added_;
};

}  // namespace

Result<CatalogEntries> ReadCatalogFile(std::string_view yaml, std::string_view file,
                                       const CatalogEntries& known) {
  FileReader reader(known);
  RETURN_IF_ERROR(ReadYaml(yaml, file, [&](YamlFields& top) { reader.Read(top); }));
  return std::move(reader).Take();
}

}  // namespace divisi
