#include "divisi/kv/msgpack.h"

#include <bit>
#include <limits>

#include "divisi/core/check.h"

namespace divisi {
namespace {

using Type = MsgpackReader::Type;

// By the first byte: types 0xc0 to 0xdf.
constexpr Type kTypes[32] = {
    Type::kNil,       Type::kNone,      Type::kBool,      Type::kBool,  // c0 nil, unused, false
    Type::kBytes,     Type::kBytes,     Type::kBytes,     Type::kExtension,  // c4 bin, c7 ext
    Type::kExtension, Type::kExtension, Type::kFloat,     Type::kFloat,      // ca float
    Type::kInt,       Type::kInt,       Type::kInt,       Type::kInt,        // cc unsigned
    Type::kInt,       Type::kInt,       Type::kInt,       Type::kInt,        // d0 signed
    Type::kExtension, Type::kExtension, Type::kExtension, Type::kExtension,  // d4 fixext
    Type::kExtension, Type::kText,      Type::kText,      Type::kText,       // d9 str
    Type::kArray,     Type::kArray,     Type::kMap,       Type::kMap,        // dc array, de map
};

constexpr bool IsNegativeFix(uint8_t first) { return first >= 0xe0; }

}  // namespace

Type MsgpackReader::Next() const {
  if (!ok_ || rest_.empty()) return Type::kNone;
  const uint8_t first = First();
  if (first <= 0x7f || IsNegativeFix(first)) return Type::kInt;
  if (first <= 0x8f) return Type::kMap;
  if (first <= 0x9f) return Type::kArray;
  if (first <= 0xbf) return Type::kText;
  return kTypes[first - 0xc0];
}

std::nullopt_t MsgpackReader::Fail() {
  ok_ = false;
  rest_ = {};
  return std::nullopt;
}

// The big-endian number behind the first byte; takes both.
uint64_t MsgpackReader::Number(size_t bytes) {
  if (rest_.size() < bytes + 1) {
    Fail();
    return 0;
  }
  uint64_t number = 0;
  for (size_t i = 1; i <= bytes; ++i) number = number << 8 | static_cast<uint8_t>(rest_[i]);
  rest_.remove_prefix(bytes + 1);
  return number;
}

std::optional<std::string_view> MsgpackReader::Run(uint64_t size) {
  if (!ok_ || size > rest_.size()) return Fail();
  const std::string_view run = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return run;
}

std::optional<uint64_t> MsgpackReader::GetUnsigned() {
  if (Next() != Type::kInt) return Fail();
  const uint8_t first = First();
  if (first <= 0x7f || (first >= 0xcc && first <= 0xcf)) {
    const uint64_t number = first <= 0x7f ? Number(0), first : Number(size_t{1} << (first - 0xcc));
    return ok_ ? std::optional(number) : std::nullopt;
  }
  const auto number = GetInt();
  if (!number || *number < 0) return Fail();
  return static_cast<uint64_t>(*number);
}

std::optional<int64_t> MsgpackReader::GetInt() {
  if (Next() != Type::kInt) return Fail();
  const uint8_t first = First();
  if (IsNegativeFix(first)) {
    Number(0);
    return static_cast<int8_t>(first);
  }
  if (first >= 0xd0 && first <= 0xd3) {
    const int bytes = 1 << (first - 0xd0);
    const uint64_t number = Number(static_cast<size_t>(bytes));
    const int shift = 64 - 8 * bytes;  // The sign is the top bit of what was read.
    if (!ok_) return std::nullopt;
    return static_cast<int64_t>(number << shift) >> shift;
  }
  const auto number = GetUnsigned();
  if (!number || *number > uint64_t{std::numeric_limits<int64_t>::max()}) return Fail();
  return static_cast<int64_t>(*number);
}

std::optional<double> MsgpackReader::GetFloat() {
  if (Next() == Type::kInt) {
    const auto whole = GetInt();
    return whole ? std::optional(static_cast<double>(*whole)) : std::nullopt;
  }
  if (Next() != Type::kFloat) return Fail();
  const bool is_double = First() == 0xcb;
  const uint64_t bits = Number(is_double ? 8 : 4);
  if (!ok_) return std::nullopt;
  return is_double ? std::bit_cast<double>(bits)
                   : double{std::bit_cast<float>(static_cast<uint32_t>(bits))};
}

std::optional<std::string_view> MsgpackReader::GetText() {
  if (Next() != Type::kText) return Fail();
  const uint8_t first = First();
  return Run(first <= 0xbf ? Number(0), first & 31 : Number(size_t{1} << (first - 0xd9)));
}

std::optional<std::string_view> MsgpackReader::GetBytes() {
  if (Next() != Type::kBytes) return Fail();
  return Run(Number(size_t{1} << (First() - 0xc4)));
}

std::optional<uint32_t> MsgpackReader::GetArray() {
  if (Next() != Type::kArray) return Fail();
  const uint8_t first = First();
  const uint64_t size = first <= 0x9f ? Number(0), first & 15 : Number(first == 0xdc ? 2 : 4);
  if (!ok_ || size > rest_.size()) return Fail();
  return static_cast<uint32_t>(size);
}

std::optional<uint32_t> MsgpackReader::GetMap() {
  if (Next() != Type::kMap) return Fail();
  const uint8_t first = First();
  const uint64_t size = first <= 0x8f ? Number(0), first & 15 : Number(first == 0xde ? 2 : 4);
  if (!ok_ || 2 * size > rest_.size()) return Fail();
  return static_cast<uint32_t>(size);
}

bool MsgpackReader::TakeNil() {
  if (Next() != Type::kNil) return false;
  Number(0);
  return true;
}

// One value without what it holds, whose number it gives.
bool MsgpackReader::SkipOne(uint64_t& waiting) {
  waiting = 0;
  const Type type = Next();
  if (type == Type::kNone) return Fail(), false;
  const uint8_t first = First();
  switch (type) {
    case Type::kArray:
      waiting = GetArray().value_or(0);
      break;
    case Type::kMap:
      waiting = 2 * uint64_t{GetMap().value_or(0)};
      break;
    case Type::kText:
      GetText();
      break;
    case Type::kBytes:
      GetBytes();
      break;
    case Type::kFloat:
      GetFloat();
      break;
    case Type::kExtension:  // A byte of type, then the run.
      Run(1 + (first <= 0xc9 ? Number(size_t{1} << (first - 0xc7))
                             : (Number(0), uint64_t{1} << (first - 0xd4))));
      break;
    case Type::kInt:
      Number(first <= 0x7f || IsNegativeFix(first) ? 0 : size_t{1} << ((first - 0xcc) & 3));
      break;
    default:
      Number(0);
  }
  return ok_;
}

std::optional<std::string_view> MsgpackReader::Skip() {
  const std::string_view before = rest_;
  uint64_t open[kMsgpackDepth + 1] = {1};  // Values still to come at each depth.
  int depth = 0;
  while (depth >= 0) {
    if (open[depth] == 0) {
      --depth;
      continue;
    }
    --open[depth];
    uint64_t waiting = 0;
    if (!SkipOne(waiting)) return std::nullopt;
    if (waiting == 0) continue;
    if (depth == kMsgpackDepth) return Fail();
    open[++depth] = waiting;
  }
  return before.substr(0, before.size() - rest_.size());
}

void MsgpackWriter::Number(int type, uint64_t value, int bytes) {
  Byte(type);
  for (int shift = 8 * bytes - 8; shift >= 0; shift -= 8) Byte(value >> shift & 0xff);
}

void MsgpackWriter::Unsigned(uint64_t value) {
  if (value <= 0x7f) return Byte(static_cast<int>(value));
  if (value <= 0xff) return Number(0xcc, value, 1);
  if (value <= 0xffff) return Number(0xcd, value, 2);
  if (value <= 0xffffffff) return Number(0xce, value, 4);
  Number(0xcf, value, 8);
}

void MsgpackWriter::Int(int64_t value) {
  const auto bits = static_cast<uint64_t>(value);
  if (value >= 0) return Unsigned(bits);
  if (value >= -32) return Byte(static_cast<int>(bits & 0xff));
  if (value >= std::numeric_limits<int8_t>::min()) return Number(0xd0, bits, 1);
  if (value >= std::numeric_limits<int16_t>::min()) return Number(0xd1, bits, 2);
  if (value >= std::numeric_limits<int32_t>::min()) return Number(0xd2, bits, 4);
  Number(0xd3, bits, 8);
}

void MsgpackWriter::Float(double value) { Number(0xcb, std::bit_cast<uint64_t>(value), 8); }

void MsgpackWriter::Text(std::string_view text) {
  const size_t size = text.size();
  if (size < 32) {
    Byte(static_cast<int>(0xa0 | size));
  } else {
    size <= 0xff     ? Number(0xd9, size, 1)
    : size <= 0xffff ? Number(0xda, size, 2)
                     : Number(0xdb, size, 4);
  }
  bytes_ += text;
}

void MsgpackWriter::Bytes(std::string_view bytes) {
  const size_t size = bytes.size();
  size <= 0xff     ? Number(0xc4, size, 1)
  : size <= 0xffff ? Number(0xc5, size, 2)
                   : Number(0xc6, size, 4);
  bytes_ += bytes;
}

void MsgpackWriter::Array(size_t elements) {
  if (elements < 16) return Byte(static_cast<int>(0x90 | elements));
  elements <= 0xffff ? Number(0xdc, elements, 2) : Number(0xdd, elements, 4);
}

void MsgpackWriter::Map(size_t pairs) {
  if (pairs < 16) return Byte(static_cast<int>(0x80 | pairs));
  pairs <= 0xffff ? Number(0xde, pairs, 2) : Number(0xdf, pairs, 4);
}

}  // namespace divisi
