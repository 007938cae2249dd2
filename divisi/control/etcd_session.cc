#include "divisi/control/etcd_session.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "divisi/control/etcd_json.h"

namespace divisi {
namespace {

// After something failed.
constexpr Seconds kAgain{0.3};
// A watch that ended before it lasted this long is opened anew after twice the last wait, up to it.
constexpr Seconds kWatchLasts{2};
// Deaths are of interest while anybody may still believe in the life: an hour is far more. Their
// lease lasts two, and is used for one.
constexpr int64_t kDeclaredSeconds = 3600;
// A watch that says nothing for so many of this process's leases is opened anew.
constexpr double kWatchLeases = 2;

int64_t WholeSeconds(Seconds time) { return static_cast<int64_t>(std::ceil(time.value)); }

}  // namespace

EtcdSession::EtcdSession(EtcdSessionOptions options) : options_(std::move(options)) {}

std::vector<EtcdCall> EtcdSession::TakeCalls() { return std::exchange(calls_, {}); }
std::optional<EtcdWatch> EtcdSession::TakeWatch() { return std::exchange(new_watch_, {}); }
std::vector<DirectoryEvent> EtcdSession::TakeEvents() { return std::exchange(events_, {}); }

bool EtcdSession::settled() const {
  return lease_ && std::ranges::all_of(kept_, [](const auto& k) { return k.second.written; });
}

void EtcdSession::Call(Pending pending, const char* path, const Json& body) {
  pending_.emplace(++last_id_, std::move(pending));
  calls_.push_back({last_id_, path, body.Dump()});
}

bool EtcdSession::UnderWay(Kind kind) const {
  return std::ranges::any_of(pending_, [&](const auto& p) { return p.second.kind == kind; });
}

bool EtcdSession::UnderWay(const std::string& key) const {
  return std::ranges::any_of(pending_, [&](const auto& p) {
    return p.second.key == key && (p.second.kind == Kind::kPut || p.second.kind == Kind::kDelete);
  });
}

// ---- What is wanted

void EtcdSession::Keep(const std::string& key, std::string value) {
  dropping_.erase(key);
  Kept& kept = kept_[key];
  if (kept.written && kept.value == value) return;
  kept.value = std::move(value);
  kept.written = false;
}

void EtcdSession::Drop(const std::string& key) {
  if (kept_.erase(key) > 0) dropping_.insert(key);
}

void EtcdSession::Declare(const std::string& key, const std::string& absent,
                          const std::string& none_of) {
  Json compare = Json::MakeArray();
  compare.Append(EtcdAbsent(Full(absent), false));
  compare.Append(EtcdAbsent(Full(none_of), true));
  declarations_.push_back({key, std::move(compare)});
}

void EtcdSession::DeclareAll(Seconds now) {
  if (declarations_.empty()) return;
  if (declare_lease_ == 0 || now >= declare_until_) {
    if (UnderWay(Kind::kDeclareGrant)) return;
    declare_lease_ = 0;
    return Call({Kind::kDeclareGrant, "", ""}, "/v3/lease/grant",
                Json(Json::Object{{"TTL", 2 * kDeclaredSeconds}}));
  }
  for (Declaration& each : std::exchange(declarations_, {})) {
    Json success = Json::MakeArray();
    success.Append(
        Json(Json::Object{{"request_put", EtcdPut(Full(each.key), "", declare_lease_)}}));
    Call({Kind::kDeclare, each.key, "", declare_lease_}, "/v3/kv/txn",
         Json(Json::Object{{"compare", std::move(each.conditions)},
                           {"success", std::move(success)}}));
  }
}

void EtcdSession::Leave() {
  leaving_ = true;
  kept_.clear();
  if (lease_) {
    Call({Kind::kRevoke, "", ""}, "/v3/lease/revoke", EtcdLeaseCall(*lease_));
  } else {
    left_ = true;
  }
}

// ---- Time

void EtcdSession::Tick(Seconds now) {
  if (leaving_) return;
  TickLease(now);
  if (!watch_ && !UnderWay(Kind::kList) && now >= list_at_) {
    Call({Kind::kList, "", ""}, "/v3/kv/range", EtcdRange(Full(options_.watched)));
  }
  if (up_ && now - heard_ >= options_.lease * (2.0 / 3)) LoseWatch(now);
  if (watch_ && now - watch_heard_ >= options_.lease * kWatchLeases) Watch(now);
  if (lease_ && now >= write_at_) WriteKeys();
  DeclareAll(now);
}

void EtcdSession::TickLease(Seconds now) {
  if (!lease_) {
    if (UnderWay(Kind::kGrant) || now < grant_at_) return;
    Call({Kind::kGrant, "", ""}, "/v3/lease/grant",
         Json(Json::Object{{"TTL", WholeSeconds(options_.lease)}}));
  } else if (now >= keep_at_ && !UnderWay(Kind::kKeepAlive)) {
    Call({Kind::kKeepAlive, "", "", *lease_}, "/v3/lease/keepalive", EtcdLeaseCall(*lease_));
  }
}

// Of each key one call at a time, since two that are under way are done in either order.
void EtcdSession::WriteKeys() {
  for (auto& [key, kept] : kept_) {
    if (kept.written || UnderWay(key)) continue;
    Call({Kind::kPut, key, kept.value, *lease_}, "/v3/kv/put",
         EtcdPut(Full(key), kept.value, *lease_));
  }
  for (auto key = dropping_.begin(); key != dropping_.end();) {
    if (UnderWay(*key)) {
      ++key;
      continue;
    }
    Call({Kind::kDelete, *key, ""}, "/v3/kv/deleterange",
         Json(Json::Object{{"key", Base64(Full(*key))}}));
    key = dropping_.erase(key);
  }
}

void EtcdSession::LoseLease(Seconds now) {
  lease_.reset();
  grant_at_ = now;
  for (auto& [key, kept] : kept_) kept.written = false;
}

void EtcdSession::LoseWatch(Seconds now) {
  watch_.reset();
  new_watch_ = EtcdWatch{};
  list_at_ = now + kAgain;
  if (std::exchange(up_, false)) events_.push_back({DirectoryEvent::Kind::kDown, "", ""});
}

// ---- Answers

void EtcdSession::Answered(uint64_t call, const Result<Json>& answer, Seconds now) {
  const auto found = pending_.find(call);
  if (found == pending_.end()) return;
  const Pending pending = std::move(found->second);
  pending_.erase(found);
  if (pending.kind == Kind::kRevoke) left_ = true;
  if (leaving_) return;
  if (!answer) return Failed(pending, answer.error(), now);
  heard_ = now;
  On(pending, *answer, now);
}

void EtcdSession::On(const Pending& pending, const Json& answer, Seconds now) {
  switch (pending.kind) {
    case Kind::kGrant:
      return Granted(answer, now);
    case Kind::kKeepAlive:
      return KeptAlive(pending, answer, now);
    case Kind::kPut:
      return Written(pending);
    case Kind::kList:
      return Listed(answer, now);
    case Kind::kDeclareGrant:
      declare_lease_ = EtcdNumber(answer, "ID");
      declare_until_ = now + Seconds(static_cast<double>(kDeclaredSeconds));
      if (declare_lease_ == 0) declarations_.clear();
      return DeclareAll(now);
    case Kind::kDeclare:
    case Kind::kDelete:
    case Kind::kRevoke:
      return;
  }
}

void EtcdSession::KeptAlive(const Pending& pending, const Json& answer, Seconds now) {
  if (pending.lease != lease_) return;
  keep_at_ = now + options_.lease * (1.0 / 3);
  const Json* result = answer.Find("result");
  if (result == nullptr || EtcdNumber(*result, "TTL") <= 0) LoseLease(now);
}

void EtcdSession::Written(const Pending& pending) {
  const auto kept = kept_.find(pending.key);
  if (kept == kept_.end()) return;  // Dropped meanwhile: its deletion waited for this.
  kept->second.written = kept->second.value == pending.value && pending.lease == lease_;
}

void EtcdSession::Failed(const Pending& pending, const Error& error, Seconds now) {
  switch (pending.kind) {
    case Kind::kGrant:
      grant_at_ = now + kAgain;
      return;
    case Kind::kKeepAlive:
      keep_at_ = now + kAgain;
      return;
    case Kind::kPut:
      write_at_ = now + kAgain;
      if (error.code == Code::kNotFound && pending.lease == lease_) LoseLease(now);
      return;
    case Kind::kDelete:
      write_at_ = now + kAgain;
      if (!kept_.contains(pending.key)) dropping_.insert(pending.key);
      return;
    case Kind::kList:
      list_at_ = now + kAgain;
      return;
    case Kind::kDeclareGrant:
      declare_lease_ = 0;
      declarations_.clear();
      return;
    case Kind::kDeclare:
      if (error.code == Code::kNotFound && pending.lease == declare_lease_) declare_lease_ = 0;
      return;
    case Kind::kRevoke:
      return;
  }
}

void EtcdSession::Granted(const Json& answer, Seconds now) {
  const int64_t lease = EtcdNumber(answer, "ID");
  if (lease == 0) {
    grant_at_ = now + kAgain;
    return;
  }
  lease_ = lease;
  keep_at_ = now + options_.lease * (1.0 / 3);
}

void EtcdSession::See(const std::string& full, std::optional<std::string> value) {
  if (!full.starts_with(options_.prefix)) return;
  const std::string key = full.substr(options_.prefix.size());
  const auto known = known_.find(key);
  if (!value) {
    if (known != known_.end()) known_.erase(known);
    events_.push_back({DirectoryEvent::Kind::kGone, key, ""});
    if (const auto kept = kept_.find(key); kept != kept_.end()) kept->second.written = false;
    return;
  }
  if (known != known_.end() && known->second == *value) return;
  known_[key] = *value;
  events_.push_back({DirectoryEvent::Kind::kPut, key, std::move(*value)});
}

void EtcdSession::SeePut(const Json& kv) {
  const std::string full = EtcdBytes(kv, "key");
  See(full, EtcdBytes(kv, "value"));
  // A put that was taken for lost, done after all, when its key was dropped and deleted.
  if (!lease_ || EtcdNumber(kv, "lease") != *lease_ || !full.starts_with(options_.prefix)) return;
  const std::string key = full.substr(options_.prefix.size());
  if (!kept_.contains(key)) dropping_.insert(key);
}

void EtcdSession::Watch(Seconds now) {
  watch_ = ++last_id_;
  watch_heard_ = watch_since_ = now;
  new_watch_ = EtcdWatch{*watch_, EtcdWatchFrom(Full(options_.watched), revision_ + 1).Dump()};
}

void EtcdSession::Listed(const Json& answer, Seconds now) {
  std::map<std::string, const Json*> there;
  if (const Json* kvs = answer.Find("kvs"); kvs != nullptr && kvs->is_array()) {
    for (const Json& kv : kvs->as_array()) there[EtcdBytes(kv, "key")] = &kv;
  }
  std::vector<std::string> vanished;
  for (const auto& [key, value] : known_) {
    if (!there.contains(Full(key))) vanished.push_back(Full(key));
  }
  for (const std::string& key : vanished) See(key, std::nullopt);
  for (const auto& [key, kv] : there) SeePut(*kv);
  const Json* header = answer.Find("header");
  revision_ = header == nullptr ? 0 : EtcdNumber(*header, "revision");
  Watch(now);
  heard_ = now;
  if (!std::exchange(up_, true)) events_.push_back({DirectoryEvent::Kind::kUp, "", ""});
}

void EtcdSession::Watched(uint64_t watch, const Json& line, Seconds now) {
  if (watch != watch_) return;
  const Json* result = line.Find("result");
  const Json* canceled = result == nullptr ? nullptr : result->Find("canceled");
  if (result == nullptr || (canceled != nullptr && *canceled == Json(true))) {
    WatchEnded(watch, now);  // Compacted, say.
    return;
  }
  watch_heard_ = now;
  const Json* events = result->Find("events");
  if (events == nullptr || !events->is_array()) return;
  for (const Json& event : events->as_array()) {
    const Json* kv = event.Find("kv");
    if (kv == nullptr) continue;
    revision_ = std::max(revision_, EtcdNumber(*kv, "mod_revision"));
    const Json* type = event.Find("type");
    if (type != nullptr && *type == Json("DELETE")) {
      See(EtcdBytes(*kv, "key"), std::nullopt);
    } else {
      SeePut(*kv);
    }
  }
}

// Lost for a moment only: what changed meanwhile is found by listing.
bool EtcdSession::WatchEnded(uint64_t watch, Seconds now) {
  if (watch != watch_) return false;
  watch_.reset();
  const bool lasted = now - watch_since_ >= kWatchLasts;
  watch_wait_ = lasted ? kAgain : std::clamp(watch_wait_ * 2, kAgain, kWatchLasts);
  list_at_ = now + watch_wait_;
  return true;
}

}  // namespace divisi
