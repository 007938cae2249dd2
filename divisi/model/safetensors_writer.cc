#include "divisi/model/safetensors_writer.h"

#include "divisi/model/model_tensors.h"

namespace divisi {

Bytes TensorSlot::bytes() const { return Bytes(Elements(shape) * ElementBytes(type)); }

std::string SafetensorsHeader(std::span<const TensorSlot> slots) {
  Json::Object header;
  header.emplace_back("__metadata__", Json::Object{{"format", "pt"}});
  Bytes at;
  for (const TensorSlot& slot : slots) {
    const Bytes end = at + slot.bytes();
    header.emplace_back(slot.name,
                        Json::Object{{"dtype", SafetensorsTypeName(slot.type)},
                                     {"shape", Json::Array(slot.shape.begin(), slot.shape.end())},
                                     {"data_offsets", Json::Array{at.value, end.value}}});
    at = end;
  }
  std::string text = Json(std::move(header)).Dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  CHECK(text.size() <= static_cast<size_t>(kMostSafetensorsHeaderBytes));
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(text.size() >> (8 * i));
  return bytes + text;
}

Result<SafetensorsWriter> SafetensorsWriter::Create(const std::filesystem::path& path,
                                                    std::span<const TensorSlot> slots) {
  ASSIGN_OR_RETURN(FileWriter file, FileWriter::Create(path));
  const std::string header = SafetensorsHeader(slots);
  RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(header))));
  Bytes total;
  for (const TensorSlot& slot : slots) total += slot.bytes();
  return SafetensorsWriter(std::move(file), total);
}

Result<void> SafetensorsWriter::Append(std::span<const std::byte> bytes) {
  left_ -= Bytes(static_cast<int64_t>(bytes.size()));
  CHECK(left_.value >= 0, "{} bytes more than the slots have", -left_.value);
  return file_.Append(bytes);
}

Result<void> SafetensorsWriter::Finish() {
  CHECK(left_.value == 0, "{} bytes of the slots were not written", left_.value);
  return file_.Commit();
}

std::vector<Shard> DealShards(std::vector<TensorSlot> slots, Bytes most_bytes) {
  CHECK(!slots.empty() && most_bytes.value > 0);
  std::vector<Shard> shards(1);
  Bytes filled;
  for (TensorSlot& slot : slots) {
    if (!shards.back().slots.empty() && filled + slot.bytes() > most_bytes) {
      shards.emplace_back();
      filled = Bytes(0);
    }
    filled += slot.bytes();
    shards.back().slots.push_back(std::move(slot));
  }
  if (shards.size() == 1) {
    shards[0].name = "model.safetensors";
    return shards;
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].name = Format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  }
  return shards;
}

Json ShardIndex(std::span<const Shard> shards) {
  Bytes total;
  Json::Object weight_map;
  for (const Shard& shard : shards) {
    for (const TensorSlot& slot : shard.slots) {
      total += slot.bytes();
      weight_map.emplace_back(slot.name, shard.name);
    }
  }
  return Json::Object{{"metadata", Json::Object{{"total_size", total.value}}},
                      {"weight_map", std::move(weight_map)}};
}

}  // namespace divisi
