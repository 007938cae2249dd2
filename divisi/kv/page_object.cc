#include "divisi/kv/page_object.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "divisi/core/wire.h"
#include "divisi/kv/xxh3.h"

namespace divisi {
namespace {

constexpr std::string_view kMagic = "DIVISIKV";
constexpr size_t kVersionAt = 8;
constexpr size_t kSumAt = 136;
constexpr size_t kSumsAt = 144;
constexpr size_t kModelAt = kPageHeadBytes - 32;
static_assert(kSumsAt + kMaxPageLayers * sizeof(uint64_t) <= kModelAt);
// What of a layer is summed before it is copied: it stays in the first caches meanwhile.
constexpr size_t kStep = size_t{16} << 10;

void PutKey(WireWriter& out, const BlockKey& key) {
  for (const uint8_t byte : key.bytes) out.Put(byte);
}

BlockKey GetKey(WireReader& in) {
  BlockKey key;
  for (uint8_t& byte : key.bytes) byte = in.Get<uint8_t>();
  return key;
}

Error Loss(std::string message) { return {Code::kDataLoss, "page object: " + std::move(message)}; }

// The checks that tell another thing from a damaged one; the sum is the next.
Result<void> CheckBeginning(std::span<const std::byte> bytes) {
  if (bytes.size() < kMagic.size() ||
      std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return Error{Code::kInvalidArgument, "no page object: it does not begin with \"DIVISIKV\""};
  }
  if (bytes.size() < kVersionAt + sizeof(uint16_t)) return Loss("truncated before its version");
  const int version = WireReader(bytes.subspan(kVersionAt)).Get<uint16_t>();
  if (version != kPageObjectVersion) {
    return Error{Code::kUnimplemented, Format("page object: version {}; this program reads {}",
                                              version, kPageObjectVersion)};
  }
  if (bytes.size() < kPageHeadBytes) {
    return Loss(
        Format("truncated to {} bytes; the head alone has {}", bytes.size(), kPageHeadBytes));
  }
  return {};
}

Result<PageHead> Parse(std::span<const std::byte> bytes) {
  WireReader in(bytes.subspan(kVersionAt + sizeof(uint16_t)));
  PageHead head;
  PageHeader& header = head.header;
  PageShape& shape = header.shape;
  const int head_bytes = in.Get<uint16_t>();
  const int kind = in.Get<uint8_t>();
  const int type = in.Get<uint8_t>();
  shape.layers = in.Get<uint16_t>();
  const auto tokens = in.Get<uint32_t>();
  shape.layer_bytes = in.Get<uint32_t>();
  const auto position = in.Get<uint64_t>();
  header.key = GetKey(in);
  header.parent = GetKey(in);
  header.root = GetKey(in);
  const auto payload = in.Get<uint64_t>();
  if (head_bytes != kPageHeadBytes) return Loss(Format("bytes of the head: {}", head_bytes));
  if (kind < 1 || kind > 3) return Loss(Format("kind of state: {}", kind));
  if (type < 1 || type > 2) return Loss(Format("element type: {}", type));
  constexpr uint64_t kMost = uint64_t{1} << 31;
  if (tokens >= kMost) return Loss(Format("tokens: {}", tokens));
  if (position >= kMost << 16) return Loss(Format("position: {}", position));
  shape.kind = static_cast<StateKind>(kind);
  shape.type = static_cast<ElementType>(type);
  shape.tokens = static_cast<int>(tokens);
  header.position = static_cast<int64_t>(position);
  if (auto good = CheckEncodable(header); !good) return Loss(good.error().message);
  if (payload != static_cast<uint64_t>(shape.PayloadBytes())) {
    return Loss(Format("bytes of the payload: {}; {} layers of {} are {}", payload, shape.layers,
                       shape.layer_bytes, shape.PayloadBytes()));
  }
  in = WireReader(bytes.subspan(kSumsAt));
  for (int i = 0; i < shape.layers; ++i) head.sums.push_back(in.Get<uint64_t>());
  const auto unused = bytes.first(kModelAt).subspan(kSumsAt + head.sums.size() * sizeof(uint64_t));
  if (std::ranges::any_of(unused, [](std::byte byte) { return byte != std::byte{0}; })) {
    return Loss("bytes behind the layers' sums: not zero");
  }
  in = WireReader(bytes.subspan(kModelAt));
  header.model = GetKey(in);
  return head;
}

}  // namespace

uint64_t PageSum(std::span<const std::byte> bytes) { return Xxh3(bytes); }

uint64_t PageHeadSum(std::span<const std::byte> head) {
  CHECK(head.size() == kPageHeadBytes);
  constexpr std::array<std::byte, sizeof(uint64_t)> kNone{};
  Xxh3Stream stream;
  stream.Update(head.first(kSumAt));
  stream.Update(kNone);
  stream.Update(head.subspan(kSumsAt));
  return stream.Sum();
}

uint64_t CopyWithSum(std::span<std::byte> to, std::span<const std::byte> from) {
  CHECK(to.size() == from.size(), "{} bytes to {}", from.size(), to.size());
  Xxh3Stream stream;
  while (!from.empty()) {
    const size_t step = std::min(kStep, from.size());
    stream.Update(from.first(step));
    std::memcpy(to.data(), from.data(), step);
    from = from.subspan(step);
    to = to.subspan(step);
  }
  return stream.Sum();
}

Result<void> CheckEncodable(const PageHeader& header) {
  const PageShape& shape = header.shape;
  if (shape.layers < 1 || shape.layers > kMaxPageLayers) {
    return Error{Code::kInvalidArgument,
                 Format("layers: {}, not within 1 to {}", shape.layers, kMaxPageLayers)};
  }
  if (shape.layer_bytes < 1 || shape.layer_bytes > kMaxPagePayload ||
      shape.PayloadBytes() > kMaxPagePayload) {
    return Error{Code::kInvalidArgument, Format("bytes of a layer: {}, {} layers within 1 to {}",
                                                shape.layer_bytes, shape.layers, kMaxPagePayload)};
  }
  if (shape.tokens < 0) return Error{Code::kInvalidArgument, Format("tokens: {}", shape.tokens)};
  if (header.position < 0) {
    return Error{Code::kInvalidArgument, Format("position: {}", header.position)};
  }
  return {};
}

std::vector<std::byte> EncodePageHead(const PageHead& head) {
  const PageHeader& header = head.header;
  const PageShape& shape = header.shape;
  CHECK(CheckEncodable(header).ok() && head.sums.size() == static_cast<size_t>(shape.layers));
  WireWriter out;
  for (const char c : kMagic) out.Put(static_cast<uint8_t>(c));
  out.Put(static_cast<uint16_t>(kPageObjectVersion));
  out.Put(static_cast<uint16_t>(kPageHeadBytes));
  out.Put(static_cast<uint8_t>(shape.kind));
  out.Put(static_cast<uint8_t>(shape.type));
  out.Put(static_cast<uint16_t>(shape.layers));
  out.Put(static_cast<uint32_t>(shape.tokens));
  out.Put(static_cast<uint32_t>(shape.layer_bytes));
  out.Put(static_cast<uint64_t>(header.position));
  PutKey(out, header.key);
  PutKey(out, header.parent);
  PutKey(out, header.root);
  out.Put(static_cast<uint64_t>(shape.PayloadBytes()));
  out.Put(uint64_t{0});
  for (const uint64_t sum : head.sums) out.Put(sum);
  auto bytes = out.Take();
  bytes.resize(kPageHeadBytes);
  std::memcpy(bytes.data() + kModelAt, header.model.bytes.data(), header.model.bytes.size());
  WireWriter sum;
  sum.Put(PageHeadSum(bytes));
  std::ranges::copy(sum.Take(), bytes.begin() + kSumAt);
  return bytes;
}

std::vector<std::byte> EncodePageObject(const PageHeader& header,
                                        std::span<const std::byte> payload) {
  CHECK(payload.size() == static_cast<size_t>(header.shape.PayloadBytes()));
  PageHead head{header, {}};
  const auto layer = static_cast<size_t>(header.shape.layer_bytes);
  for (size_t at = 0; at < payload.size(); at += layer) {
    head.sums.push_back(PageSum(payload.subspan(at, layer)));
  }
  auto bytes = EncodePageHead(head);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

Result<PageHead> ReadPageHead(std::span<const std::byte> bytes) {
  RETURN_IF_ERROR(CheckBeginning(bytes));
  bytes = bytes.first(kPageHeadBytes);
  const auto said = WireReader(bytes.subspan(kSumAt)).Get<uint64_t>();
  if (const uint64_t sum = PageHeadSum(bytes); sum != said) {
    return Loss(Format("sum of the head: it has {:016x} and says {:016x}", sum, said));
  }
  return Parse(bytes);
}

Result<void> CheckPageLayers(const PageHead& head, int first, std::span<const std::byte> bytes) {
  const auto size = static_cast<size_t>(head.header.shape.layer_bytes);
  CHECK(first >= 0 && bytes.size() % size == 0 &&
        static_cast<size_t>(first) + bytes.size() / size <= head.sums.size());
  for (auto layer = static_cast<size_t>(first); !bytes.empty(); ++layer) {
    const uint64_t sum = PageSum(bytes.first(size));
    if (sum != head.sums[layer]) {
      return Loss(Format("sum of layer {}: it has {:016x} and the head says {:016x}", layer, sum,
                         head.sums[layer]));
    }
    bytes = bytes.subspan(size);
  }
  return {};
}

Result<PageHead> CheckPageObject(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(PageHead head, ReadPageHead(bytes));
  const auto payload = bytes.subspan(kPageHeadBytes);
  const auto said = static_cast<size_t>(head.header.shape.PayloadBytes());
  if (payload.size() != said) {
    return Loss(Format("{} after its head: {} bytes, the head says {}",
                       payload.size() < said ? "truncated" : "too long", payload.size(), said));
  }
  RETURN_IF_ERROR(CheckPageLayers(head, 0, payload));
  return head;
}

Result<void> CheckIsAsked(const PageHeader& found, const PageHeader& asked) {
  const auto key = [](std::string_view name, const BlockKey& has, const BlockKey& want) {
    return Loss(Format("{}: {}, asked for {}", name, has.Hex(), want.Hex()));
  };
  if (found.key != asked.key) return key("key", found.key, asked.key);
  if (found.model != asked.model) return key("model", found.model, asked.model);
  if (found.root != asked.root) return key("root", found.root, asked.root);
  const auto differ = [](std::string_view name, int64_t has, int64_t want) {
    return Loss(Format("{}: {}, asked for {}", name, has, want));
  };
  const PageShape &has = found.shape, &want = asked.shape;
  if (has.kind != want.kind) {
    return differ("kind of state", static_cast<int>(has.kind), static_cast<int>(want.kind));
  }
  if (has.type != want.type) {
    return differ("element type", static_cast<int>(has.type), static_cast<int>(want.type));
  }
  if (has.layers != want.layers) return differ("layers", has.layers, want.layers);
  if (has.tokens != want.tokens) return differ("tokens", has.tokens, want.tokens);
  if (has.layer_bytes != want.layer_bytes) {
    return differ("bytes of a layer", has.layer_bytes, want.layer_bytes);
  }
  if (found.position != asked.position) return differ("position", found.position, asked.position);
  return {};
}

}  // namespace divisi
