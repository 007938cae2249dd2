#include "divisi/control/route_prefix.h"

#include <algorithm>

namespace divisi {

std::vector<BlockKey> SharedPromptKeys(KeySpace space, const Request& request) {
  std::vector<BlockKey> keys;
  // Prompts that are scored compute all of it.
  if (request.prompt.empty() || request.prompt_logprobs >= 0) return keys;
  space.tenant_salt = request.cache_salt;
  ExtendKeys(RootKey(space), request.prompt, (request.prompt.size() - 1) / kBlockTokens, keys);
  return keys;
}

std::array<int64_t, 4> PagesThere(const std::array<int64_t, 4>& shown,
                                  const std::array<int64_t, 4>& found) {
  std::array<int64_t, 4> there{};
  int64_t before = 0, found_by = 0;
  for (size_t t = 0; t < there.size(); ++t) {
    found_by += found[t];
    there[t] = std::clamp<int64_t>(found_by - before, 0, shown[t]);
    before += shown[t];
  }
  return there;
}

std::vector<RoutePrefix> RoutePrefixes(PageDirectory& directory, std::span<const BlockKey> keys,
                                       std::span<const PrefixHolder> holders, Seconds now) {
  std::vector<HolderMatch> matches = directory.Find(keys, now);
  std::ranges::sort(matches, {}, &HolderMatch::holder);
  const auto match_of = [&](NodeId holder) {
    const auto at = std::ranges::lower_bound(matches, holder, {}, &HolderMatch::holder);
    return at != matches.end() && at->holder == holder ? *at : HolderMatch{};
  };
  const int32_t pooled = match_of(kPoolHolder).pages.back();
  std::vector<RoutePrefix> prefixes;
  for (const PrefixHolder& holder : holders) {
    HolderMatch match = match_of(holder.node);
    int32_t& any = match.pages.back();
    if (holder.pool) any = std::max(any, pooled);
    RoutePrefix& prefix = prefixes.emplace_back();
    for (size_t tier = 0; tier < match.pages.size(); ++tier) {
      prefix.tokens[tier] = int64_t{match.pages[tier]} * kBlockTokens;
      prefix.odds[tier] = directory.Odds(holder.node, static_cast<Tier>(tier));
    }
    prefix.promised = int64_t{std::max(any, match.promised)} * kBlockTokens;
  }
  return prefixes;
}

}  // namespace divisi
