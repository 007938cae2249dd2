#include "divisi/model/safetensors.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>

#include "divisi/core/json.h"

namespace divisi {
namespace {

struct StoredType {
  const char* name;
  int bits;
  std::optional<DataType> type;
};
constexpr StoredType kTypes[] = {
    {"BF16", 16, DataType::kBf16},
    {"F16", 16, DataType::kF16},
    {"F32", 32, DataType::kF32},
    {"BOOL", 8, {}},
    {"U8", 8, {}},
    {"I8", 8, {}},
    {"U16", 16, {}},
    {"I16", 16, {}},
    {"U32", 32, {}},
    {"I32", 32, {}},
    {"U64", 64, {}},
    {"I64", 64, {}},
    {"F64", 64, {}},
    {"C64", 64, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E5M2", 8, {}},
    {"F8_E8M0", 8, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"F4", 4, {}},
};

// One tensor as the header describes it.
struct Entry {
  std::string_view name;
  const StoredType* type = nullptr;
  std::vector<int64_t> shape;
  int64_t begin = 0;
  int64_t end = 0;
};

Error Lying(std::string_view what) { return {Code::kDataLoss, std::string(what)}; }

// Text from the file as a message may show it: quoted, escaped, short.
std::string Shown(std::string_view text) {
  constexpr size_t kMostShown = 120;
  return Json(text.substr(0, kMostShown)).Dump() + (text.size() > kMostShown ? "..." : "");
}

Error LyingTensor(std::string_view name, std::string_view what) {
  return Lying(Format("tensor {}: {}", Shown(name), what));
}

// The header's text, after its length has been checked against the file.
Result<std::string_view> HeaderText(std::span<const std::byte> file) {
  constexpr size_t kLengthBytes = 8;
  if (file.size() < kLengthBytes) {
    return Lying(Format("the file has {} bytes, too few for a header length", file.size()));
  }
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) length |= std::to_integer<uint64_t>(file[i]) << (8 * i);
  if (length > static_cast<uint64_t>(kMostSafetensorsHeaderBytes)) {
    return Lying(Format("the header claims {} bytes, more than the format's {}", length,
                        kMostSafetensorsHeaderBytes));
  }
  if (length > file.size() - kLengthBytes) {
    return Lying(Format("the header claims {} bytes, but {} follow its length", length,
                        file.size() - kLengthBytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  if (!text.starts_with('{')) return Lying("the header does not start with '{'");
  return text;
}

// A tensor's description has few members, and a repeated one is a contradiction.
Result<const Json*> OnlyMember(const Json& object, std::string_view name) {
  const Json* found = nullptr;
  for (const auto& [key, value] : object.as_object()) {
    if (key != name) continue;
    if (found != nullptr) return Lying(Format("{} is given twice", name));
    found = &value;
  }
  if (found == nullptr) return Lying(Format("{} is missing", name));
  return found;
}

Result<const StoredType*> ParseType(const Json& entry) {
  ASSIGN_OR_RETURN(const Json* name, OnlyMember(entry, "dtype"));
  if (!name->is_string()) return Lying("dtype is not a string");
  for (const StoredType& type : kTypes) {
    if (name->as_string() == type.name) return &type;
  }
  return Lying(Format("dtype {} is unknown", Shown(name->as_string())));
}

Result<std::vector<int64_t>> ParseShape(const Json& entry) {
  ASSIGN_OR_RETURN(const Json* list, OnlyMember(entry, "shape"));
  if (!list->is_array()) return Lying("shape is not a list");
  std::vector<int64_t> shape;
  for (const Json& extent : list->as_array()) {
    if (!extent.is_int() || extent.as_int() < 0) {
      return Lying("shape is not a list of integers from 0");
    }
    shape.push_back(extent.as_int());
  }
  return shape;
}

Result<std::pair<int64_t, int64_t>> ParseOffsets(const Json& entry) {
  ASSIGN_OR_RETURN(const Json* list, OnlyMember(entry, "data_offsets"));
  if (!list->is_array() || list->as_array().size() != 2 || !list->as_array()[0].is_int() ||
      !list->as_array()[1].is_int()) {
    return Lying("data_offsets is not a pair of integers");
  }
  const int64_t begin = list->as_array()[0].as_int();
  const int64_t end = list->as_array()[1].as_int();
  if (begin < 0 || end < begin)
    return Lying(Format("data_offsets {} to {} are disordered", begin, end));
  return std::pair(begin, end);
}

// Bytes of a tensor; kDataLoss when the number overflows or is not whole.
Result<int64_t> StoredBytes(const std::vector<int64_t>& shape, int bits) {
  int64_t total = bits;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(total, extent, &total)) {
      return Lying("the product of its shape overflows");
    }
  }
  if (total % 8 != 0) return Lying("its elements do not fill whole bytes");
  return total / 8;
}

Result<Entry> ParseEntry(std::string_view name, const Json& value, int64_t data_bytes) {
  if (!value.is_object()) return Lying("is not described by an object");
  Entry entry{.name = name};
  ASSIGN_OR_RETURN(entry.type, ParseType(value));
  ASSIGN_OR_RETURN(entry.shape, ParseShape(value));
  ASSIGN_OR_RETURN(std::tie(entry.begin, entry.end), ParseOffsets(value));
  if (entry.end > data_bytes) {
    return Lying(Format("data_offsets end at {}, but the file holds {} bytes of data", entry.end,
                        data_bytes));
  }
  ASSIGN_OR_RETURN(const int64_t bytes, StoredBytes(entry.shape, entry.type->bits));
  if (bytes != entry.end - entry.begin) {
    return Lying(Format("shape and dtype need {} bytes, but data_offsets span {}", bytes,
                        entry.end - entry.begin));
  }
  return entry;
}

Result<void> CheckMetadata(const Json& metadata) {
  if (!metadata.is_object()) return Lying("__metadata__ is not an object");
  for (const auto& [key, value] : metadata.as_object()) {
    if (!value.is_string()) {
      return Lying(Format("__metadata__ {} is not a string", Shown(key)));
    }
  }
  return {};
}

Result<std::vector<Entry>> ParseEntries(const Json& header, int64_t data_bytes) {
  std::vector<Entry> entries;
  std::set<std::string_view> names;
  for (const auto& [name, value] : header.as_object()) {
    if (!names.insert(name).second) return LyingTensor(name, "is described twice");
    if (name == "__metadata__") {
      RETURN_IF_ERROR(CheckMetadata(value));
      continue;
    }
    auto entry = ParseEntry(name, value, data_bytes);
    if (!entry) return LyingTensor(name, entry.error().message);
    entries.push_back(std::move(entry).value());
  }
  return entries;
}

// Errors unless the entries cover [0, data_bytes) end to end. Requires: sorted by place.
Result<void> CheckCover(const std::vector<Entry>& entries, int64_t data_bytes) {
  int64_t covered = 0;
  std::string_view before;
  for (const Entry& entry : entries) {
    if (entry.begin < covered) {
      return LyingTensor(entry.name,
                         Format("its data begin at {}, inside those of {}, which end at {}",
                                entry.begin, Shown(before), covered));
    }
    if (entry.begin > covered) {
      return LyingTensor(
          entry.name, Format("its data begin at {}, leaving a gap after {}", entry.begin, covered));
    }
    covered = entry.end;
    before = entry.name;
  }
  if (covered != data_bytes) {
    return Lying(
        Format("the tensors end at {}, but the file holds {} bytes of data", covered, data_bytes));
  }
  return {};
}

}  // namespace

Result<Safetensors> ParseSafetensors(std::span<const std::byte> file) {
  ASSIGN_OR_RETURN(const std::string_view text, HeaderText(file));
  const auto data = file.subspan(8 + text.size());
  const auto header = Json::Parse(text);
  if (!header) return Lying(Format("the header is {}", header.error().message));
  if (!header->is_object()) return Lying("the header is not a JSON object");
  const int64_t data_bytes = static_cast<int64_t>(data.size());
  ASSIGN_OR_RETURN(std::vector<Entry> entries, ParseEntries(*header, data_bytes));
  std::ranges::sort(entries, {}, [](const Entry& e) { return std::tuple(e.begin, e.end, e.name); });
  RETURN_IF_ERROR(CheckCover(entries, data_bytes));

  Safetensors result;
  for (Entry& entry : entries) {
    if (!entry.type->type) {
      result.other_types.emplace(entry.name, entry.type->name);
      continue;
    }
    result.tensors.emplace(
        entry.name,
        TensorView{.type = *entry.type->type,
                   .shape = std::move(entry.shape),
                   .bytes = data.subspan(static_cast<size_t>(entry.begin),
                                         static_cast<size_t>(entry.end - entry.begin))});
  }
  return result;
}

const char* SafetensorsTypeName(DataType type) {
  for (const StoredType& stored : kTypes) {
    if (stored.type == type) return stored.name;
  }
  CHECK(false, "no data type {}", static_cast<int>(type));
}

}  // namespace divisi
