#include "divisi/model/synth.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "divisi/core/file.h"
#include "divisi/core/random.h"
#include "divisi/model/safetensors_writer.h"

namespace divisi {
namespace {

constexpr int kLevels = 1 << 16;

// What transformers calls initializer_range, in all families here. With it the residual grows to
// about ten times the square root of the layers' number in the widest published models: finite in
// every type.
constexpr RandomTensor::Distribution kMatrix = {.mean = 0, .deviation = 0.02f};
constexpr RandomTensor::Distribution kNorm = {.mean = 1, .deviation = 0.05f};

// A piece that is written at once, and the part of it that one task fills: large enough that calls
// cost nothing, small enough for a few MB of memory and a moving bar.
constexpr int64_t kPieceElements = int64_t{1} << 23;
constexpr int64_t kTaskElements = int64_t{1} << 16;
static_assert(kPieceElements % kTaskElements == 0 &&
              kTaskElements % RandomTensor::kDrawsPerBlock == 0);

// FNV-1a: tells the tensors' streams apart.
uint64_t StreamOf(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return hash;
}

// Quantiles of the normal distribution at (i + 1/2) / kLevels.
std::vector<double> NormalQuantiles() {
  std::vector<double> quantiles(kLevels);
  double z = 0;
  for (int i = kLevels / 2; i < kLevels; ++i) {
    // Newton steps on the upper tail; the last quantile is a close start.
    const double tail = 1 - (i + 0.5) / kLevels;
    constexpr int kSteps = 6;
    for (int step = 0; step < kSteps; ++step) {
      const double error = 0.5 * std::erfc(z / std::numbers::sqrt2) - tail;
      z += error * std::sqrt(2 * std::numbers::pi) * std::exp(z * z / 2);
    }
    quantiles[static_cast<size_t>(i)] = z;
    quantiles[static_cast<size_t>(kLevels - 1 - i)] = -z;
  }
  return quantiles;
}

uint16_t ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);  // To nearest even.
}

// Requires: |value| < 2^15, so that no rounding reaches infinity.
uint16_t ToF16(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float magnitude = std::abs(value);
  DCHECK(magnitude < 32768);
  // Units of the last place: 2^-24 for subnormals, else 2^(exponent - 10).
  const int exponent = magnitude < 0x1p-14f ? -14 : std::ilogb(magnitude);
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  // A normal number's leading 1 adds itself to the exponent, as does a mantissa that rounded up.
  return static_cast<uint16_t>(sign | (((exponent + 14) << 10) + units));
}

void Store(float value, DataType type, std::byte* out) {
  if (type == DataType::kF32) {
    std::memcpy(out, &value, sizeof value);
    return;
  }
  const uint16_t bits = type == DataType::kBf16 ? ToBf16(value) : ToF16(value);
  std::memcpy(out, &bits, sizeof bits);
}

// Looks up one level for each 16-bit draw.
template <typename Element>
void FillFrom(const std::byte* levels, std::array<uint32_t, 2> key, uint64_t stream, uint64_t block,
              std::span<std::byte> out) {
  constexpr size_t kBlockBytes = RandomTensor::kDrawsPerBlock * sizeof(Element);
  for (size_t at = 0; at < out.size(); at += kBlockBytes, ++block) {
    const auto words =
        Philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                    static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                   key);
    Element drawn[RandomTensor::kDrawsPerBlock];
    for (size_t i = 0; i < words.size(); ++i) {
      std::memcpy(&drawn[2 * i], levels + sizeof(Element) * (words[i] & 0xFFFF), sizeof(Element));
      std::memcpy(&drawn[2 * i + 1], levels + sizeof(Element) * (words[i] >> 16), sizeof(Element));
    }
    std::memcpy(out.data() + at, drawn, std::min(kBlockBytes, out.size() - at));
  }
}

// What WriteSynthWeights keeps between tensors.
class SynthRun {
 public:
  SynthRun(const SynthOptions& options, ThreadPool& pool, Bytes total)
      : options_(options),
        pool_(pool),
        matrix_(kMatrix, options.type),
        norm_(kNorm, options.type),
        total_(total) {}

  Result<void> WriteTensor(const TensorSlot& slot, SafetensorsWriter& writer) {
    const RandomTensor& source = slot.name.ends_with("norm.weight") ? norm_ : matrix_;
    const int64_t elements = Elements(slot.shape);
    for (int64_t first = 0; first < elements; first += kPieceElements) {
      FillPiece(source, slot.name, first, std::min(kPieceElements, elements - first));
      RETURN_IF_ERROR(writer.Append(piece_));
      done_ += Bytes(static_cast<int64_t>(piece_.size()));
      if (options_.progress) options_.progress(done_, total_);
    }
    return {};
  }

 private:
  void FillPiece(const RandomTensor& source, std::string_view name, int64_t first, int64_t count) {
    const int64_t width = ElementBytes(source.type());
    piece_.resize(static_cast<size_t>(count * width));
    const int64_t tasks = (count + kTaskElements - 1) / kTaskElements;
    pool_.Run(tasks, [&](int64_t task, int) {
      const int64_t begin = task * kTaskElements;
      const int64_t length = std::min(kTaskElements, count - begin);
      source.Fill(options_.seed, name, first + begin,
                  std::span(piece_).subspan(static_cast<size_t>(begin * width),
                                            static_cast<size_t>(length * width)));
    });
  }

  const SynthOptions& options_;
  ThreadPool& pool_;
  RandomTensor matrix_;
  RandomTensor norm_;
  Bytes total_;
  Bytes done_;
  std::vector<std::byte> piece_;
};

}  // namespace

RandomTensor::RandomTensor(Distribution distribution, DataType type) : type_(type) {
  const int64_t width = ElementBytes(type);
  levels_.resize(static_cast<size_t>(kLevels * width));
  std::byte* out = levels_.data();
  for (const double z : NormalQuantiles()) {
    Store(static_cast<float>(distribution.mean + distribution.deviation * z), type, out);
    out += width;
  }
}

void RandomTensor::Fill(uint64_t seed, std::string_view name, int64_t first,
                        std::span<std::byte> out) const {
  CHECK(first >= 0 && first % kDrawsPerBlock == 0);
  CHECK(out.size() % static_cast<size_t>(ElementBytes(type_)) == 0);
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed),
                                       static_cast<uint32_t>(seed >> 32)};
  const auto fill = type_ == DataType::kF32 ? FillFrom<uint32_t> : FillFrom<uint16_t>;
  fill(levels_.data(), key, StreamOf(name), static_cast<uint64_t>(first / kDrawsPerBlock), out);
}

Result<void> WriteSynthWeights(const ModelSpec& spec, const std::filesystem::path& directory,
                               const SynthOptions& options, ThreadPool& pool) {
  std::vector<TensorSlot> slots;
  Bytes total;
  for (ModelTensor& tensor : ModelTensors(spec)) {
    slots.push_back({std::move(tensor.name), options.type, std::move(tensor.shape)});
    total += slots.back().bytes();
  }
  const std::vector<Shard> shards = DealShards(std::move(slots), options.most_shard_bytes);
  SynthRun run(options, pool, total);
  for (const Shard& shard : shards) {
    ASSIGN_OR_RETURN(auto writer, SafetensorsWriter::Create(directory / shard.name, shard.slots));
    for (const TensorSlot& slot : shard.slots) RETURN_IF_ERROR(run.WriteTensor(slot, writer));
    RETURN_IF_ERROR(writer.Finish());
  }
  // Last, so that an index never names a shard that is not there.
  if (shards.size() == 1) return {};
  return WriteFileAtomic(directory / "model.safetensors.index.json", ShardIndex(shards).Dump(1));
}

}  // namespace divisi
