#include "divisi/kv/tier_manager.h"

#include <algorithm>
#include <set>
#include <utility>

#include "divisi/core/check.h"

namespace divisi {
namespace {

// Requests and pages that one call looks at to fetch ahead; the next call goes on. Most are there:
// a look costs some table look-ups.
constexpr int kPrefetchLooks = 4096;
constexpr size_t kKnownInPool = size_t{1} << 18;
// Pages that lost a copy in the pool and are being read: of several long prompts.
constexpr size_t kMostLostCopies = 8192;

}  // namespace

TierManager::TierManager(const TierOptions& options)
    : options_(options),
      host_(options.host_pages),
      disk_(options.disk_pages),
      history_(options.remembered),
      upcoming_(options.lookahead),
      admission_(options.budget),
      bad_(options.most_bad),
      in_pool_(options.pool ? kKnownInPool : 0) {
  CHECK(options.host_pages >= 0 && options.disk_pages >= 0 && options.most_moves > 0,
        "{} host and {} disk pages, {} moves", options.host_pages, options.disk_pages,
        options.most_moves);
}

std::vector<Tier> TierManager::Find(std::span<const BlockKey> keys, int64_t from) const {
  std::vector<Tier> tiers;
  for (size_t i = static_cast<size_t>(from); i < keys.size(); ++i) {
    if (host_.Has(keys[i])) {
      tiers.push_back(Tier::kHost);
    } else if (disk_.Has(keys[i])) {
      tiers.push_back(Tier::kDisk);
    } else {
      break;
    }
  }
  return tiers;
}

EvictionRank TierManager::Rank(const BlockKey& key, Tier tier) const {
  const PageRecord record = history_.Of(key);
  return RankOf(options_.policy, {.next_use = upcoming_.NextUse(key),
                                  .last_use = record.last_use,
                                  .uses = record.traits.uses,
                                  .position = record.position,
                                  .also_below = tier == Tier::kHost && disk_.Has(key)});
}

void TierManager::Rerank(const BlockKey& key) {
  for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
    if (Index(tier).Has(key)) Index(tier).Rerank(key, Rank(key, tier));
  }
}

void TierManager::Used(std::span<const BlockKey> chain) {
  history_.Used(chain, [this](const PageTraits& traits) { admission_.CameBack(traits); });
  for (const BlockKey& key : chain) Rerank(key);
}

void TierManager::Ended(std::span<const BlockKey> chain, int64_t answer_tokens,
                        SessionState session) {
  history_.Ended(chain, answer_tokens, session);
}

bool TierManager::Expect(RequestId request, std::span<const BlockKey> keys, Seconds now) {
  const auto place = upcoming_.Expect(request, keys);
  if (!place) return false;
  for (const BlockKey& key : keys) Rerank(key);
  place_of_[request] = *place;
  Prefetch& prefetch = prefetches_[*place];
  prefetch.keys.assign(keys.begin(), keys.end());
  const auto has = has_first_.find(request);
  if (has != has_first_.end()) prefetch.from = prefetch.next = std::min(has->second, keys.size());
  unfinished_.insert(*place);
  RunPrefetch(now);
  return true;
}

void TierManager::HasFirst(RequestId request, int64_t pages) {
  const auto first = static_cast<size_t>(pages);
  has_first_[request] = first;
  const auto found = place_of_.find(request);
  if (found == place_of_.end()) return;
  Prefetch& prefetch = prefetches_.at(found->second);
  const size_t from = std::min(first, prefetch.keys.size());
  if (from < prefetch.from) {
    prefetch.next = from;
    unfinished_.insert(found->second);
  }
  prefetch.next = std::max(prefetch.next, from);
  prefetch.from = from;
}

void TierManager::Forget(RequestId request, Seconds now) {
  const auto found = place_of_.find(request);
  if (found != place_of_.end()) {
    prefetches_.erase(found->second);
    unfinished_.erase(found->second);
    place_of_.erase(found);
  }
  has_first_.erase(request);
  for (const BlockKey& key : upcoming_.Forget(request)) Rerank(key);
  RunPrefetch(now);
}

void TierManager::RunPrefetch(Seconds now) {
  for (int look = 0; look < kPrefetchLooks && !unfinished_.empty(); ++look) {
    const int64_t place = *unfinished_.begin();
    // Farther ones would hold room for long that others can use.
    if (place >= prefetches_.begin()->first + options_.prefetch_requests) return;
    Prefetch& first = prefetches_.at(place);
    if (first.next == first.keys.size()) {
      unfinished_.erase(place);
      continue;
    }
    const BlockKey key = first.keys[first.next];
    if (disk_.Has(key) && !host_.Knows(key)) {
      if (!CanMove(2) || !MakeHostRoom(Rank(key, Tier::kHost), now) || !CanMove(1)) return;
      if (!disk_.Has(key)) continue;  // A page that went to the disk took its place.
      StartCopy(names_.at(key), Tier::kDisk, Tier::kHost, -1);
    }
    ++first.next;
  }
}

void TierManager::Complete(const PageName& page, BlockId block, Seconds now) {
  if (host_.Knows(page.key)) return;
  if (saves_waiting_.empty() && CanMove(1)) return SavePage(page, block, now);
  if (static_cast<int64_t>(saves_waiting_.size()) < options_.most_waiting) {
    saves_waiting_.push_back({page, block});
  } else {
    ++counts_.saves_refused;
  }
}

void TierManager::RunSaves(Seconds now) {
  while (!saves_waiting_.empty() && CanMove(1)) {
    const Save next = std::move(saves_waiting_.front());
    saves_waiting_.pop_front();
    SavePage(next.page, next.block, now);
  }
}

void TierManager::SavePage(const PageName& page, BlockId block, Seconds now) {
  if (host_.Knows(page.key)) return;
  const bool room = host_.capacity() > 0 && !bad_.Bars(page.key, Tier::kHost) &&
                    MakeHostRoom(Rank(page.key, Tier::kHost), now) && CanMove(1);
  if (room) {
    StartCopy(page, Tier::kDevice, Tier::kHost, block);
    return;
  }
  // What went to the disk in its place took the last move: it waits on.
  if (host_.capacity() > 0 && !CanMove(1)) return saves_waiting_.push_front({page, block});
  OfferToPool(page, block);
  if (!WriteAtOnce(page, block, now) && host_.capacity() > 0) ++counts_.saves_refused;
}

void TierManager::PoolLostCopy(const BlockKey& key) {
  if (lost_copies_.size() >= kMostLostCopies)
    lost_copies_.clear();  // Of loads that failed, mostly.
  lost_copies_.insert(key);
}

void TierManager::OfferToPool(const PageName& page, BlockId block) {
  if (!options_.pool || to_pool_.contains(page.key) || bad_.Bars(page.key, Tier::kRemote)) return;
  const bool copy_lost = lost_copies_.erase(page.key) > 0;
  if (in_pool_.Has(page.key) && !copy_lost) return;
  if (static_cast<int64_t>(pool_waiting_.size()) >= options_.most_pool_waiting) {
    ++counts_.pool_puts_dropped;
    return;
  }
  to_pool_.insert(page.key);
  pool_waiting_.push_back({page, block});
  RunPool();
}

void TierManager::RunPool() {
  while (!pool_waiting_.empty() && pool_moves_ < options_.most_pool_moves && CanMove(2)) {
    const PoolPut next = pool_waiting_.front();
    const bool in_host = host_.Has(next.page.key);
    if (!in_host && next.block >= 0 && pool_pins_ >= options_.most_pool_pins) return;
    pool_waiting_.pop_front();
    if (!in_host && next.block < 0) {
      to_pool_.erase(next.page.key);
      ++counts_.pool_puts_dropped;
      continue;
    }
    const Tier from = in_host ? Tier::kHost : Tier::kDevice;
    ++pool_moves_;
    pool_pins_ += !in_host;
    StartCopy(next.page, from, Tier::kRemote, in_host ? -1 : next.block);
  }
}

// A page that host memory does not take goes to the disk as if it had been given up.
bool TierManager::WriteAtOnce(const PageName& page, BlockId block, Seconds now) {
  if (!Judge(page.key, now)) return false;
  StartCopy(page, Tier::kDevice, Tier::kDisk, block);
  return true;
}

// Whether one more copy may start; share 2 leaves half of them to others.
bool TierManager::CanMove(int64_t share) const {
  return static_cast<int64_t>(moves_.size()) < std::max<int64_t>(options_.most_moves / share, 1);
}

void TierManager::StartCopy(const PageName& page, Tier from, Tier to, BlockId block) {
  names_.try_emplace(page.key, page);
  if (to != Tier::kRemote) {
    CHECK(Index(to).Reserve(page.key), "no room for {}", page.key.Hex());
  }
  if (to == Tier::kDisk) ++disk_children_[page.parent];
  if (from != Tier::kDevice) Index(from).Pin(page.key);
  const TierAction action{.kind = TierAction::Kind::kCopy,
                          .id = next_move_++,
                          .page = page,
                          .from = from,
                          .to = to,
                          .block = block};
  moves_.emplace(action.id, Move{.action = action});
  actions_.push_back(action);
}

bool TierManager::MakeHostRoom(const EvictionRank& rank, Seconds now) {
  for (int tries = 0; host_.full() && tries < kMostVictims && CanMove(1); ++tries) {
    const auto victim = host_.First();
    if (!victim || victim->rank >= rank) return false;
    if (Demote(victim->key, now)) continue;
    ++counts_.host_evictions;
    Drop(victim->key, Tier::kHost);
  }
  return !host_.full();
}

// A copy to the disk has started.
bool TierManager::Demote(const BlockKey& key, Seconds now) {
  if (options_.disk_writes == DiskWrites::kAll || !Judge(key, now)) return false;
  StartCopy(names_.at(key), Tier::kHost, Tier::kDisk, -1);
  return true;
}

// Whether the page is to be written, for which there is then room.
bool TierManager::Judge(const BlockKey& key, Seconds now) {
  if (disk_.capacity() == 0 || disk_.Knows(key) || bad_.Bars(key, Tier::kDisk) || !CanMove(1)) {
    return false;
  }
  const EvictionRank rank = Rank(key, Tier::kDisk);
  const auto first = disk_.First();
  if (disk_.full() && (!first || first->rank >= rank)) return false;
  if (options_.disk_writes == DiskWrites::kAll) return MakeDiskRoom(rank);
  const PageRecord record = history_.Of(key);
  if (record.judged) return false;
  // What the disk holds behind it is of no use without it.
  const bool needed = upcoming_.NextUse(key).has_value() || disk_children_.contains(key);
  history_.SetJudged(key, !needed);
  return admission_.Admit(record.traits, needed, now) && MakeDiskRoom(rank);
}

bool TierManager::MakeDiskRoom(const EvictionRank& rank) {
  const auto victim = disk_.full() ? disk_.First() : std::nullopt;
  if (victim && victim->rank < rank) {
    ++counts_.disk_evictions;
    Drop(victim->key, Tier::kDisk);
  }
  return !disk_.full();
}

void TierManager::Pin(const BlockKey& key, Tier tier) { Index(tier).Pin(key); }

void TierManager::Unpin(const BlockKey& key, Tier tier) {
  if (Index(tier).Unpin(key)) Gone(key, tier);
}

// The page is not offered any more; it goes at once, or with its last reader.
void TierManager::Drop(const BlockKey& key, Tier tier) {
  Emit(TierEvent::Kind::kRemoved, key, tier);
  const auto place = upcoming_.NextUse(key);
  if (tier == Tier::kHost && place && disk_.Has(key)) {  // It is to come back in time.
    Prefetch& prefetch = prefetches_.at(*place);
    prefetch.next = prefetch.from;
    unfinished_.insert(*place);
  }
  if (Index(tier).Remove(key)) Gone(key, tier);
  if (tier == Tier::kDisk) Rerank(key);
}

void TierManager::Gone(const BlockKey& key, Tier tier) {
  if (tier == Tier::kDisk) LeftDisk(names_.at(key));
  actions_.push_back(
      {.kind = TierAction::Kind::kRemove, .page = names_.at(key), .from = tier, .to = tier});
  ForgetName(key);
}

void TierManager::LeftDisk(const PageName& page) {
  const auto found = disk_children_.find(page.parent);
  if (found == disk_children_.end()) return;  // Its file named another parent than the page has.
  if (--found->second == 0) disk_children_.erase(found);
}

void TierManager::ForgetName(const BlockKey& key) {
  if (!host_.Knows(key) && !disk_.Knows(key)) names_.erase(key);
}

void TierManager::Emit(TierEvent::Kind kind, const BlockKey& key, Tier tier) {
  events_.push_back({kind, names_.at(key), tier});
}

void TierManager::Done(uint64_t id, bool ok, Seconds now) {
  const auto found = moves_.find(id);
  if (found == moves_.end()) return;
  const Move move = found->second;
  moves_.erase(found);
  const auto& [kind, move_id, page, from, to, block] = move.action;
  if (!ok) ++counts_.failed_moves;
  if (to == Tier::kRemote) {
    --pool_moves_;
    pool_pins_ -= from == Tier::kDevice;
    to_pool_.erase(page.key);
    counts_.pool_puts_failed += !ok;
  }
  if (ok && !move.revoked) {
    Arrived(move);
  } else {
    if (to != Tier::kRemote) Index(to).Cancel(page.key);
    if (to == Tier::kDisk) LeftDisk(page);
    if (ok) {
      actions_.push_back({.kind = TierAction::Kind::kRemove, .page = page, .from = to, .to = to});
    }
  }
  Release(move);
  RunSaves(now);
  RunPool();
  RunPrefetch(now);
}

void TierManager::Arrived(const Move& move) {
  const auto& [kind, id, page, from, to, block] = move.action;
  bad_.Rewritten(page.key, to);
  if (to == Tier::kRemote) {
    ++counts_.pool_puts;
    in_pool_.Set(page.key, true);
    return;
  }
  Index(to).Publish(page.key, Rank(page.key, to));
  Rerank(page.key);
  Emit(TierEvent::Kind::kStored, page.key, to);
  ++(to == Tier::kHost ? counts_.host_writes : counts_.disk_writes);
  counts_.promotions += from == Tier::kDisk;
  if (from != Tier::kDevice || to != Tier::kHost) return;
  OfferToPool(page, -1);
  if (options_.disk_writes == DiskWrites::kAll && !disk_.Knows(page.key) && CanMove(1) &&
      !bad_.Bars(page.key, Tier::kDisk) && MakeDiskRoom(Rank(page.key, Tier::kDisk))) {
    StartCopy(page, Tier::kHost, Tier::kDisk, -1);
  }
}

// The copy's source is free again.
void TierManager::Release(const Move& move) {
  const BlockKey& key = move.action.page.key;
  if (move.action.from != Tier::kDevice) Unpin(key, move.action.from);
  ForgetName(key);
}

void TierManager::Bad(const BlockKey& key, Tier tier) {
  bad_.Failed(key, tier);
  if (tier == Tier::kRemote) in_pool_.Set(key, false);
  if (tier == Tier::kRemote || tier == Tier::kPeer || !Index(tier).Has(key)) return;
  for (auto& [id, move] : moves_) {  // What is copied from it is as bad.
    if (move.action.page.key == key && move.action.from == tier) move.revoked = true;
  }
  Drop(key, tier);
}

bool TierManager::Restore(const PageName& page) {
  if (!disk_.Reserve(page.key)) return false;
  names_.try_emplace(page.key, page);
  ++disk_children_[page.parent];
  disk_.Publish(page.key, Rank(page.key, Tier::kDisk));
  Emit(TierEvent::Kind::kStored, page.key, Tier::kDisk);
  return true;
}

void TierManager::Clear() {
  for (auto& [id, move] : moves_) move.revoked = true;
  for (const PoolPut& put : pool_waiting_) to_pool_.erase(put.page.key);
  pool_waiting_.clear();
  saves_waiting_.clear();
  for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
    events_.push_back({TierEvent::Kind::kCleared, {}, tier});
    for (const BlockKey& key : Index(tier).RemoveAll()) Gone(key, tier);
  }
}

std::vector<TierAction> TierManager::TakeActions() { return std::exchange(actions_, {}); }
std::vector<TierEvent> TierManager::TakeEvents() { return std::exchange(events_, {}); }

TierStats TierManager::stats() const {
  TierStats stats = counts_;
  stats.host_pages = host_.present();
  stats.host_pinned = host_.pinned();
  stats.host_arriving = host_.arriving();
  stats.disk_pages = disk_.present();
  stats.disk_pinned = disk_.pinned();
  stats.disk_arriving = disk_.arriving();
  stats.saves_waiting = static_cast<int64_t>(saves_waiting_.size());
  stats.pool_waiting = static_cast<int64_t>(pool_waiting_.size());
  stats.awaited_pages = upcoming_.pages();
  stats.moves = static_cast<int64_t>(moves_.size());
  stats.bad_objects = bad_.failures();
  stats.in_quarantine = bad_.size();
  stats.writes_judged = admission_.judged();
  stats.budget_pages = admission_.level_pages();
  stats.budget_pages_per_second = admission_.budget().pages_per_second;
  return stats;
}

void TierManager::Verify() const {
  host_.Verify();
  disk_.Verify();
  std::set<BlockKey> moving;
  int64_t to_host = 0, to_disk = 0, to_pool = 0, pool_pins = 0;
  for (const auto& [id, move] : moves_) {
    const TierAction& action = move.action;
    const BlockKey& key = action.page.key;
    moving.insert(key);
    to_host += action.to == Tier::kHost;
    to_disk += action.to == Tier::kDisk;
    to_pool += action.to == Tier::kRemote;
    pool_pins += action.to == Tier::kRemote && action.from == Tier::kDevice;
    if (action.to != Tier::kRemote) {
      CHECK(Index(action.to).Knows(key) && !Index(action.to).Has(key), "{} arrives", key.Hex());
    }
    if (action.from == Tier::kDevice) continue;
    CHECK(Index(action.from).Pinned(key), "{} may go while it is copied", key.Hex());
  }
  CHECK(to_host == host_.arriving() && to_disk == disk_.arriving(), "{} and {} copies, {} and {}",
        to_host, to_disk, host_.arriving(), disk_.arriving());
  CHECK(to_pool == pool_moves_ && pool_pins == pool_pins_, "{} copies to the pool, not {}", to_pool,
        pool_moves_);
  CHECK(to_pool_.size() == static_cast<size_t>(to_pool) + pool_waiting_.size());
  CHECK(static_cast<int64_t>(moves_.size()) <= options_.most_moves, "{} moves", moves_.size());
  for (const auto& [key, name] : names_) {
    CHECK(host_.Knows(key) || disk_.Knows(key) || moving.contains(key), "{} is nowhere", key.Hex());
  }
  CHECK(prefetches_.size() == place_of_.size() && unfinished_.size() <= place_of_.size(),
        "{} and {} of {}", prefetches_.size(), unfinished_.size(), place_of_.size());
}

}  // namespace divisi
