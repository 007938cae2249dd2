#include "divisi/sim/sim_directory.h"

#include <utility>
#include <variant>

namespace divisi {

SimDirectory::Session* SimDirectory::Find(Client client) {
  const auto found = sessions_.find(client);
  return found == sessions_.end() || !found->second.on_event ? nullptr : &found->second;
}

// ---- Whether it is there

// A process notices by what is not answered, before its lease could have ended.
void SimDirectory::Down() {
  up_ = false;
  ++outage_;
  for (const auto& [client, session] : sessions_) {
    schedule_.In(kLease * (2.0 / 3 * random_.Uniform()),
                 [this, client = client, outage = outage_] { TellDown(client, outage); });
  }
}

void SimDirectory::TellDown(Client client, uint64_t outage) {
  Session* session = Find(client);
  if (session == nullptr || up_ || outage != outage_ || !session->told_up) return;
  session->told_up = false;
  session->on_event({.kind = DirectoryEvent::Kind::kDown});
}

void SimDirectory::Up() {
  up_ = true;
  for (const auto& [client, session] : sessions_) {
    schedule_.In(Soon(), [this, client = client] { Write(client); });
    if (!session.on_event) schedule_.In(kLease, [this, client = client] { Expire(client); });
  }
  Changed();
}

// ---- Who is there

SimDirectory::Client SimDirectory::Join(std::string watched, OnEvent on_event) {
  const Client client = ++last_;
  sessions_[client] = {.watched = std::move(watched), .on_event = std::move(on_event)};
  schedule_.In(Soon(), [this, client] { Tell(client); });
  return client;
}

void SimDirectory::Leave(Client client) {
  Lost(client);
  schedule_.In(Soon(), [this, client] { Expire(client); });
}

void SimDirectory::Lost(Client client) {
  sessions_.at(client).on_event = nullptr;
  schedule_.In(kLease, [this, client] { Expire(client); });
}

void SimDirectory::Expire(Client client) {
  if (!up_ || sessions_.erase(client) == 0) return;
  std::erase_if(keys_, [client](const auto& key) { return key.second.owner == client; });
  Changed();
}

// ---- Keys

void SimDirectory::Do(Client client, const DirectoryAction& action) {
  Session& session = sessions_.at(client);
  if (const auto* declare = std::get_if<DeclareAction>(&action)) {
    return schedule_.In(Soon(), [this, declare = *declare] { Declare(declare); });
  }
  if (const auto* keep = std::get_if<KeepAction>(&action)) session.kept[keep->key] = keep->value;
  if (const auto* drop = std::get_if<DropAction>(&action)) session.kept.erase(drop->key);
  schedule_.In(Soon(), [this, client] { Write(client); });
}

void SimDirectory::Write(Client client) {
  const Session* session = Find(client);
  if (session == nullptr || !up_) return;  // Up writes it.
  bool changes = std::erase_if(keys_, [&](const auto& key) {
                   return key.second.owner == client && !session->kept.contains(key.first);
                 }) > 0;
  for (const auto& [name, value] : session->kept) {
    const auto known = keys_.find(name);
    if (known != keys_.end() && known->second.value == value) continue;
    keys_[name] = {value, client};
    changes = true;
  }
  if (changes) Changed();
}

void SimDirectory::Declare(const DeclareAction& declare) {
  if (!up_ || keys_.contains(declare.key) || keys_.contains(declare.absent)) return;
  const auto some = keys_.lower_bound(declare.none_of);
  if (some != keys_.end() && some->first.starts_with(declare.none_of)) return;
  keys_[declare.key] = {};
  ++declared_;
  Changed();
}

// ---- Who hears of it

void SimDirectory::Changed() {
  for (const auto& [client, session] : sessions_) {
    schedule_.In(Soon(), [this, client = client] { Tell(client); });
  }
}

void SimDirectory::Tell(Client client) {
  Session* session = Find(client);
  if (session == nullptr || !up_) return;
  using Kind = DirectoryEvent::Kind;
  std::map<std::string, std::string> now;
  for (auto at = keys_.lower_bound(session->watched);
       at != keys_.end() && at->first.starts_with(session->watched); ++at) {
    now[at->first] = at->second.value;
  }
  const auto before = std::exchange(session->known, now);
  for (const auto& [name, value] : before) {
    if (!now.contains(name)) session->on_event({Kind::kGone, name, ""});
  }
  for (const auto& [name, value] : now) {
    const auto known = before.find(name);
    if (known == before.end() || known->second != value) {
      session->on_event({Kind::kPut, name, value});
    }
  }
  if (!std::exchange(session->told_up, true)) session->on_event({.kind = Kind::kUp});
}

}  // namespace divisi
