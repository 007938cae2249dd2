// MessagePack, read and written in place. Source: github.com/msgpack/msgpack, spec.md.
//
// Written here for two reasons: Debian's msgpack-c comes with a Boost other than the one this
// project uses, and readers that build a tree take memory for what a length claims before its bytes
// are there. This one walks over foreign bytes: it takes no memory, a length beyond what is there
// fails at once, nesting is bounded, and what the caller does not know stays a span of bytes that
// can be written again as it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace divisi {

// Deepest nesting that a reader follows: an event batch needs 5.
inline constexpr int kMsgpackDepth = 16;

class MsgpackReader {
 public:
  enum class Type { kNil, kBool, kInt, kFloat, kText, kBytes, kArray, kMap, kExtension, kNone };

  explicit MsgpackReader(std::string_view bytes) : rest_(bytes) {}

  // Of the next value; kNone at the end, after an error, and for a byte that begins none.
  Type Next() const;
  bool AtEnd() const { return rest_.empty(); }
  // False once anything was not what was asked for. Every Get then gives nothing.
  bool ok() const { return ok_; }

  // Whole numbers: what fits. Get<Text> and so on leave the reader failed at another type.
  std::optional<int64_t> GetInt();
  std::optional<uint64_t> GetUnsigned();
  std::optional<double> GetFloat();  // Whole numbers too.
  std::optional<std::string_view> GetText();
  std::optional<std::string_view> GetBytes();
  // The number of elements, or of pairs, that follow; each takes at least a byte, or two.
  std::optional<uint32_t> GetArray();
  std::optional<uint32_t> GetMap();
  // The bytes of one whole value of any type. Fails where it nests deeper than kMsgpackDepth.
  std::optional<std::string_view> Skip();
  // Takes a nil, where one comes.
  bool TakeNil();

 private:
  uint64_t Number(size_t bytes);
  std::optional<std::string_view> Run(uint64_t size);
  bool SkipOne(uint64_t& waiting);
  std::nullopt_t Fail();
  uint8_t First() const { return static_cast<uint8_t>(rest_.front()); }

  std::string_view rest_;
  bool ok_ = true;
};

// Each value in its shortest form, except doubles, which stay doubles.
class MsgpackWriter {
 public:
  void Nil() { Byte(0xc0); }
  void Int(int64_t value);
  void Unsigned(uint64_t value);
  void Float(double value);
  void Text(std::string_view text);
  void Bytes(std::string_view bytes);
  void Array(size_t elements);
  void Map(size_t pairs);
  // One value that was read with Skip.
  void Raw(std::string_view value) { bytes_ += value; }

  size_t size() const { return bytes_.size(); }
  std::string Take() { return std::move(bytes_); }

 private:
  void Byte(int byte) { bytes_ += static_cast<char>(byte); }
  void Number(int type, uint64_t value, int bytes);
  std::string bytes_;
};

}  // namespace divisi
