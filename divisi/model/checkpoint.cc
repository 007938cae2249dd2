#include "divisi/model/checkpoint.h"

#include <algorithm>
#include <set>

#include "divisi/core/json.h"

namespace divisi {
namespace {

constexpr const char* kConfigName = "config.json";
constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";

// A config has a few KB; the largest published index (half a million tensors) has some 50 MB.
constexpr size_t kMostConfigBytes = size_t{1} << 20;
constexpr size_t kMostIndexBytes = size_t{128} << 20;

// Small enough that a bar moves while a disk is read, and large enough that calls cost nothing.
constexpr size_t kPopulateBytes = size_t{64} << 20;

// Names and types in messages come from the files: quoted, escaped, short.
std::string Shown(std::string_view text) { return Json(text.substr(0, 120)).Dump(); }

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += Format("{}{}", i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

Error MissingFile(const std::filesystem::path& directory, std::string_view what) {
  return {Code::kNotFound,
          Format("{} has no {}; a checkpoint directory holds {}, and {} or {} with the shards that "
                 "it lists",
                 directory.string(), what, kConfigName, kSingleName, kIndexName)};
}

Result<Json> ReadJson(const std::filesystem::path& path, size_t max_bytes) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, max_bytes));
  auto json = Json::Parse(text);
  if (!json) return WithContext(json.error(), path.string());
  return json;
}

// A shard is a file of the checkpoint's own directory.
bool IsShardName(std::string_view name) {
  const auto plain = [](char c) { return c > ' ' && c <= '~' && c != '/' && c != '\\'; };
  return name.ends_with(".safetensors") && name.size() <= 255 && std::ranges::all_of(name, plain);
}

// tensor -> shard, as the index says.
Result<std::map<std::string, std::string>> ParseIndex(const Json& index) {
  const Json* weight_map = index.Find("weight_map");
  if (weight_map == nullptr || !weight_map->is_object()) {
    return Error{Code::kInvalidArgument, "weight_map must be an object"};
  }
  std::map<std::string, std::string> shard_of;
  for (const auto& [tensor, shard] : weight_map->as_object()) {
    if (!shard.is_string() || !IsShardName(shard.as_string())) {
      return Error{
          Code::kInvalidArgument,
          Format("weight_map gives tensor {} no plain file name ending in .safetensors{}",
                 Shown(tensor), shard.is_string() ? Format(": {}", Shown(shard.as_string())) : "")};
    }
    if (!shard_of.emplace(tensor, shard.as_string()).second) {
      return Error{Code::kInvalidArgument, Format("weight_map lists {} twice", Shown(tensor))};
    }
  }
  if (shard_of.empty()) return Error{Code::kInvalidArgument, "weight_map is empty"};
  return shard_of;
}

// Errors unless the shard holds just the tensors that the index places there.
Result<void> CheckAgainstIndex(const Safetensors& held, const std::string& shard,
                               const std::map<std::string, std::string>& shard_of) {
  const auto check = [&](const std::string& name) -> Result<void> {
    const auto listed = shard_of.find(name);
    if (listed != shard_of.end() && listed->second == shard) return {};
    return Error{Code::kDataLoss,
                 Format("tensor {} is in {}, but {} {}", Shown(name), shard, kIndexName,
                        listed == shard_of.end() ? "does not list it"
                                                 : Format("places it in {}", listed->second))};
  };
  for (const auto& [name, view] : held.tensors) RETURN_IF_ERROR(check(name));
  for (const auto& [name, type] : held.other_types) RETURN_IF_ERROR(check(name));
  return {};
}

}  // namespace

Result<ModelSpec> LoadModelSpec(const std::filesystem::path& directory) {
  const auto path = directory / kConfigName;
  auto config = ReadJson(path, kMostConfigBytes);
  if (!config) {
    if (config.error().code == Code::kNotFound) return MissingFile(directory, kConfigName);
    return config.error();
  }
  auto spec = ParseModelSpec(*config);
  if (!spec) return WithContext(spec.error(), path.string());
  return spec;
}

Result<Checkpoint> Checkpoint::Open(const std::filesystem::path& directory) {
  Checkpoint checkpoint;
  checkpoint.directory_ = directory;
  ASSIGN_OR_RETURN(checkpoint.spec_, LoadModelSpec(directory));

  // One file wins over an index, as in the software that writes these directories.
  const auto single = checkpoint.AddFile(directory / kSingleName);
  if (single) return checkpoint;
  if (single.error().code != Code::kNotFound) return single.error();

  const auto index_path = directory / kIndexName;
  const auto index = ReadJson(index_path, kMostIndexBytes);
  if (!index) {
    if (index.error().code == Code::kNotFound) return MissingFile(directory, kSingleName);
    return index.error();
  }
  const auto shard_of = ParseIndex(*index);
  if (!shard_of) return WithContext(shard_of.error(), index_path.string());
  RETURN_IF_ERROR(checkpoint.AddShards(*shard_of));
  return checkpoint;
}

Result<void> Checkpoint::AddFile(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  auto parsed = ParseSafetensors(file.bytes());
  if (!parsed) return WithContext(parsed.error(), path.string());
  files_.push_back(std::move(file));
  tensors_.merge(parsed->tensors);
  other_types_.merge(parsed->other_types);
  return {};
}

Result<void> Checkpoint::AddShards(const std::map<std::string, std::string>& shard_of) {
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : shard_of) shards.insert(shard);
  for (const std::string& shard : shards) {
    const auto path = directory_ / shard;
    auto file = MappedFile::Open(path);
    if (!file) {
      if (file.error().code != Code::kNotFound) return file.error();
      return MissingFile(directory_, Format("{}, which {} lists", shard, kIndexName));
    }
    auto parsed = ParseSafetensors(file->bytes());
    if (!parsed) return WithContext(parsed.error(), path.string());
    RETURN_IF_ERROR(CheckAgainstIndex(*parsed, shard, shard_of));
    files_.push_back(std::move(file).value());
    // No name is in two shards, since each is where the index says.
    tensors_.merge(parsed->tensors);
    other_types_.merge(parsed->other_types);
  }
  for (const auto& [tensor, shard] : shard_of) {
    if (tensors_.contains(tensor) || other_types_.contains(tensor)) continue;
    return Error{Code::kDataLoss, Format("{}: tensor {} is not in {}, where {} places it",
                                         directory_.string(), Shown(tensor), shard, kIndexName)};
  }
  return {};
}

Result<TensorView> Checkpoint::Get(const std::string& name,
                                   const std::vector<int64_t>& shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    const auto other = other_types_.find(name);
    if (other != other_types_.end()) {
      return Error{Code::kUnimplemented,
                   Format("{}: tensor {} is stored as {}; BF16, F16 and F32 are supported",
                          directory_.string(), Shown(name), other->second)};
    }
    return Error{Code::kNotFound, Format("{} has no tensor {}", directory_.string(), Shown(name))};
  }
  if (found->second.shape != shape) {
    return Error{
        Code::kDataLoss,
        Format("{}: tensor {} has shape {}, but {} calls for {}", directory_.string(), Shown(name),
               ShapeText(found->second.shape), kConfigName, ShapeText(shape))};
  }
  return found->second;
}

Bytes Checkpoint::TotalBytes() const {
  Bytes total;
  for (const auto& [name, view] : tensors_) total += Bytes(static_cast<int64_t>(view.bytes.size()));
  return total;
}

void Checkpoint::Release() const {
  for (const MappedFile& file : files_) file.Release();
}

void Checkpoint::Populate(const std::function<void(Bytes done, Bytes total)>& progress) const {
  Bytes total;
  for (const MappedFile& file : files_) total += Bytes(static_cast<int64_t>(file.bytes().size()));
  Bytes done;
  progress(done, total);
  for (const MappedFile& file : files_) {
    const size_t size = file.bytes().size();
    for (size_t offset = 0; offset < size; offset += kPopulateBytes) {
      const size_t length = std::min(kPopulateBytes, size - offset);
      file.Populate(offset, length);
      done += Bytes(static_cast<int64_t>(length));
      progress(done, total);
    }
  }
}

}  // namespace divisi
