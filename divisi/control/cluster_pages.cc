#include "divisi/control/cluster_pages.h"

#include <algorithm>
#include <utility>

#include "divisi/control/route_prefix.h"
#include "divisi/core/check.h"

namespace divisi {
namespace {

// Pages that are known of one store, some 64 bytes each: as many as the directory is made for.
constexpr size_t kMostStorePages = 10'000'000;

// Of the hashes of an event.
std::vector<BlockKey> KeysOf(const std::vector<EventHash>& hashes) {
  std::vector<BlockKey> keys;
  keys.reserve(hashes.size());
  for (const EventHash& hash : hashes) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(hash.bytes().data());
    keys.push_back(hash.is_bytes() ? KeyOfHash(std::span(bytes, hash.bytes().size()))
                                   : KeyOfHash(hash.number()));
  }
  return keys;
}

// None: blocks there are nothing that a prompt can use.
std::optional<Tier> TierOf(const std::optional<std::string>& medium) {
  switch (TierOfMedium(medium)) {
    case EventTier::kDevice:
      return Tier::kDevice;
    case EventTier::kHost:
      return Tier::kHost;
    case EventTier::kDisk:
      return Tier::kDisk;
    case EventTier::kRemote:
      return Tier::kRemote;
    case EventTier::kUnknown:
      return std::nullopt;
  }
  return std::nullopt;
}

// What an event says of pages.
struct PagesOf {
  bool cleared = false;
  bool stored = false;
  std::optional<Tier> tier;
  std::vector<BlockKey> keys;
};
PagesOf Read(const KvEvent& event) {
  PagesOf pages;
  pages.cleared = std::holds_alternative<ClearedEvent>(event);
  if (const auto* stored = std::get_if<StoredEvent>(&event)) {
    if (!IsPrefixEvidence(stored->spec_kind)) return pages;
    pages.stored = true;
    pages.tier = TierOf(stored->medium);
    pages.keys = KeysOf(stored->hashes);
  } else if (const auto* removed = std::get_if<RemovedEvent>(&event)) {
    pages.tier = TierOf(removed->medium);
    pages.keys = KeysOf(removed->hashes);
  }
  return pages;
}

}  // namespace

ClusterPages::ClusterPages(std::optional<PageDirectory> directory)
    : directory_(std::move(directory)) {
  if (directory_) CHECK(directory_->Join(kPoolHolder).ok());
}

std::vector<ClusterPages::Action> ClusterPages::TakeActions() {
  return std::exchange(actions_, {});
}

void ClusterPages::Members(const Registry& registry) {
  if (!directory_) return;
  const bool gone = std::erase_if(followed_, [&](const auto& each) {
                      const auto& [node, followed] = each;
                      if (registry.members().contains(node)) return false;
                      directory_->Forget(node);
                      if (followed) actions_.emplace_back(UnfollowAction{node});
                      return true;
                    }) > 0;
  for (const auto& [node, member] : registry.members()) {
    const EventEndpoints& at = member.hello.events;
    if (at.live.empty() || node == kPoolHolder) continue;
    // Who found no room is tried again when others went.
    const auto known = followed_.find(node);
    if (known != followed_.end() && (known->second || !gone)) continue;
    const bool room = directory_->Join(node).ok();
    followed_[node] = room;
    if (room) actions_.emplace_back(FollowAction{node, at});
  }
}

void ClusterPages::Heard(NodeId holder, const EventUpdate& update) {
  const auto found = followed_.find(holder);
  if (found == followed_.end() || !found->second) return;
  if (update.forget) directory_->Clear(holder);
  for (const KvEvent& event : update.events) {
    const PagesOf pages = Read(event);
    if (pages.cleared) {
      directory_->Clear(holder);
    } else if (pages.tier && pages.stored) {
      directory_->Stored(holder, *pages.tier, pages.keys);
    } else if (pages.tier) {
      directory_->Removed(holder, *pages.tier, pages.keys);
    }
  }
}

// ---- The pool

void ClusterPages::HeardStore(uint64_t store, const EventUpdate& update) {
  if (!directory_) return;
  Keys& held = stores_[store];
  if (update.forget) ForgetStore(held);
  for (const KvEvent& event : update.events) TakeStore(held, event);
}

void ClusterPages::ForgetStore(Keys& held) {
  std::vector<BlockKey> keys(held.begin(), held.end());
  std::ranges::sort(keys);  // Equal runs give equal directories.
  directory_->Removed(kPoolHolder, Tier::kRemote, keys);
  held.clear();
}

// Only what changes is told to the directory, which counts.
void ClusterPages::TakeStore(Keys& held, const KvEvent& event) {
  PagesOf pages = Read(event);
  if (pages.cleared) return ForgetStore(held);
  std::erase_if(pages.keys, [&](const BlockKey& key) {
    if (!pages.stored) return held.erase(key) == 0;
    return held.size() >= kMostStorePages || !held.insert(key).second;
  });
  if (pages.stored) {
    directory_->Stored(kPoolHolder, Tier::kRemote, pages.keys);
  } else {
    directory_->Removed(kPoolHolder, Tier::kRemote, pages.keys);
  }
}

}  // namespace divisi
