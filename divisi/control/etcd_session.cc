#include "divisi/control/etcd_session.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "divisi/control/etcd_json.h"

namespace divisi {
namespace {

// After something failed.
constexpr Seconds kAgain{0.3};
// Deaths are of interest while anybody may still believe in the life: an hour is far more.
constexpr int64_t kDeclaredSeconds = 3600;

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
  // Its lease is asked for first; Answered goes on.
  Call({Kind::kDeclareGrant, key, compare.Dump()}, "/v3/lease/grant",
       Json(Json::Object{{"TTL", kDeclaredSeconds}}));
}

void EtcdSession::DeclareNow(const Pending& pending, const Json& granted) {
  auto compare = Json::Parse(pending.value);
  if (!compare) return;
  Json put = Json(
      Json::Object{{"request_put", EtcdPut(Full(pending.key), "", EtcdNumber(granted, "ID"))}});
  Json success = Json::MakeArray();
  success.Append(std::move(put));
  Call({Kind::kDeclare, pending.key, ""}, "/v3/kv/txn",
       Json(Json::Object{{"compare", *compare}, {"success", std::move(success)}}));
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
  if (lease_ && now >= write_at_) WriteKeys();
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

void EtcdSession::WriteKeys() {
  for (auto& [key, kept] : kept_) {
    if (kept.written || kept.writing) continue;
    kept.writing = true;
    Call({Kind::kPut, key, kept.value, *lease_}, "/v3/kv/put",
         EtcdPut(Full(key), kept.value, *lease_));
  }
  for (const std::string& key : std::exchange(dropping_, {})) {
    Call({Kind::kDelete, key, ""}, "/v3/kv/deleterange",
         Json(Json::Object{{"key", Base64(Full(key))}}));
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
  const auto kept = kept_.find(pending.key);
  if (pending.kind == Kind::kPut && kept != kept_.end()) kept->second.writing = false;
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
      return DeclareNow(pending, answer);
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
  if (kept == kept_.end()) {
    dropping_.insert(pending.key);  // Dropped meanwhile; the deletion may have come first.
  } else {
    kept->second.written = kept->second.value == pending.value && pending.lease == lease_;
  }
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
    case Kind::kDeclare:
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

void EtcdSession::Listed(const Json& answer, Seconds now) {
  std::map<std::string, std::string> there;
  if (const Json* kvs = answer.Find("kvs"); kvs != nullptr && kvs->is_array()) {
    for (const Json& kv : kvs->as_array()) there[EtcdBytes(kv, "key")] = EtcdBytes(kv, "value");
  }
  std::vector<std::string> vanished;
  for (const auto& [key, value] : known_) {
    if (!there.contains(Full(key))) vanished.push_back(Full(key));
  }
  for (const std::string& key : vanished) See(key, std::nullopt);
  for (auto& [key, value] : there) See(key, std::move(value));
  const Json* header = answer.Find("header");
  const int64_t revision = header == nullptr ? 0 : EtcdNumber(*header, "revision");
  watch_ = ++last_id_;
  new_watch_ = EtcdWatch{*watch_, EtcdWatchFrom(Full(options_.watched), revision + 1).Dump()};
  heard_ = now;
  if (!std::exchange(up_, true)) events_.push_back({DirectoryEvent::Kind::kUp, "", ""});
}

void EtcdSession::Watched(uint64_t watch, const Json& line, Seconds now) {
  if (watch != watch_) return;
  const Json* result = line.Find("result");
  const Json* canceled = result == nullptr ? nullptr : result->Find("canceled");
  if (result == nullptr || (canceled != nullptr && *canceled == Json(true))) {
    return WatchEnded(watch, now);  // Compacted, say.
  }
  const Json* events = result->Find("events");
  if (events == nullptr || !events->is_array()) return;
  for (const Json& event : events->as_array()) {
    const Json* kv = event.Find("kv");
    if (kv == nullptr) continue;
    const Json* type = event.Find("type");
    const bool gone = type != nullptr && *type == Json("DELETE");
    See(EtcdBytes(*kv, "key"),
        gone ? std::nullopt : std::optional<std::string>(EtcdBytes(*kv, "value")));
  }
}

// Lost for a moment only: what changed meanwhile is found by listing.
void EtcdSession::WatchEnded(uint64_t watch, Seconds now) {
  if (watch != watch_) return;
  watch_.reset();
  list_at_ = now + kAgain;
}

}  // namespace divisi
