#include "divisi/plan/gemm_padding.h"

#include <algorithm>

#include "divisi/core/format.h"
#include "divisi/plan/checks.h"

namespace divisi {

Result<PaddedRows> PadToTiles(std::span<const int64_t> rows, int64_t tile) {
  constexpr double kMostTileRows = 0x1p20;
  constexpr double kMostExperts = 0x1p20;
  constexpr double kMostRows = 0x1p40;  // Of one expert: 2^20 of them stay below 2^62.
  RETURN_IF_ERROR(RequireBetween({"rows of a tile", static_cast<double>(tile)}, 1, kMostTileRows));
  RETURN_IF_ERROR(
      RequireBetween({"number of experts", static_cast<double>(rows.size())}, 1, kMostExperts));
  PaddedRows padded;
  int64_t fullest = 0;
  for (const int64_t count : rows) {
    RETURN_IF_ERROR(
        RequireBetween({"rows of an expert", static_cast<double>(count)}, 0, kMostRows));
    const int64_t whole = (count + tile - 1) / tile * tile;
    padded.useful += count;
    padded.non_empty += whole;
    padded.all += std::max(whole, tile);
    fullest = std::max(fullest, whole);
  }
  if (padded.useful == 0) {
    return Error{Code::kInvalidArgument, "no expert has a row; give at least one"};
  }
  padded.largest = fullest * static_cast<int64_t>(rows.size());
  return padded;
}

}  // namespace divisi
