#include "divisi/control/cluster_message.h"

#include <utility>

#include "divisi/control/report_wire.h"
#include "divisi/core/format.h"
#include "divisi/core/wire.h"

namespace divisi {
namespace {

constexpr uint32_t kMostLayers = 1 << 16;
// Of a host's name, a port and a topic: far more than either has.
constexpr size_t kMostEndpointBytes = 1024;

// One function a type and direction, in the order of its fields.

void Put(WireWriter& out, NodeId node) { out.Put(node.value); }
NodeId GetNode(WireReader& in) { return {in.Get<uint64_t>()}; }

void Put(WireWriter& out, const TransferId& id) {
  Put(out, id.gateway);
  out.Put(id.number);
  out.Put(id.attempt);
}
TransferId GetTransfer(WireReader& in) {
  TransferId id;
  id.gateway = GetNode(in);
  id.number = in.Get<uint64_t>();
  id.attempt = in.Get<uint32_t>();
  return id;
}

void Put(WireWriter& out, const Error& error) {
  out.Put(static_cast<uint8_t>(error.code));
  out.Put(error.message);
}
Error GetError(WireReader& in) {
  constexpr int kCodes = static_cast<int>(Code::kInternal) + 1;
  const Code code = in.Get<Code>(kCodes);
  return {code, in.GetText()};
}

void PutIds(WireWriter& out, const std::vector<int32_t>& ids) {
  out.PutList(ids, [](WireWriter& w, int32_t id) { w.Put(id); });
}
std::vector<int32_t> GetIds(WireReader& in) {
  return in.GetList<int32_t>(4, [](WireReader& r) { return r.Get<int32_t>(); });
}

void PutBytes(WireWriter& out, const std::vector<std::byte>& bytes) {
  out.PutList(bytes, [](WireWriter& w, std::byte b) { w.Put(b); });
}
std::vector<std::byte> GetBytes(WireReader& in) {
  return in.GetList<std::byte>(
      1, [](WireReader& r) { return static_cast<std::byte>(r.Get<uint8_t>()); });
}

void Put(WireWriter& out, const SampledToken& token) {
  out.Put(token.token);
  out.PutOptional(token.logprob, [](WireWriter& w, float x) { w.Put(x); });
  out.PutList(token.top, [](WireWriter& w, const TokenLogprob& top) {
    w.Put(top.token);
    w.Put(top.logprob);
  });
}
SampledToken GetToken(WireReader& in) {
  SampledToken token;
  token.token = in.Get<int32_t>();
  token.logprob = in.GetOptional<float>([](WireReader& r) { return r.GetFloat(); });
  token.top = in.GetList<TokenLogprob>(8, [](WireReader& r) {
    const auto id = r.Get<int32_t>();
    return TokenLogprob{id, r.GetFloat()};
  });
  return token;
}
void PutTokens(WireWriter& out, const std::vector<SampledToken>& tokens) {
  out.PutList(tokens, [](WireWriter& w, const SampledToken& token) { Put(w, token); });
}
std::vector<SampledToken> GetTokens(WireReader& in) {
  return in.GetList<SampledToken>(9, GetToken);
}

void Put(WireWriter& out, const SamplingParams& sampling) {
  out.Put(sampling.temperature);
  out.Put(sampling.top_p);
  out.Put(static_cast<int32_t>(sampling.top_k));
  out.Put(sampling.min_p);
  out.Put(sampling.presence_penalty);
  out.Put(sampling.frequency_penalty);
  out.Put(sampling.repetition_penalty);
  out.Put(sampling.seed);
  out.Put(static_cast<int32_t>(sampling.top_logprobs));
  out.PutList(sampling.logit_bias, [](WireWriter& w, const std::pair<TokenId, float>& bias) {
    w.Put(bias.first);
    w.Put(bias.second);
  });
}
SamplingParams GetSampling(WireReader& in) {
  SamplingParams sampling;
  sampling.temperature = in.GetDouble();
  sampling.top_p = in.GetDouble();
  sampling.top_k = in.Get<int32_t>();
  sampling.min_p = in.GetDouble();
  sampling.presence_penalty = in.GetDouble();
  sampling.frequency_penalty = in.GetDouble();
  sampling.repetition_penalty = in.GetDouble();
  sampling.seed = in.Get<uint64_t>();
  sampling.top_logprobs = in.Get<int32_t>();
  sampling.logit_bias = in.GetList<std::pair<TokenId, float>>(8, [](WireReader& r) {
    const auto id = r.Get<int32_t>();
    return std::pair{id, r.GetFloat()};
  });
  // What the sampler takes for granted (model/sampler.h).
  in.Require(sampling.temperature >= 0 && sampling.top_p > 0 && sampling.min_p >= 0 &&
             sampling.min_p <= 1 && sampling.repetition_penalty > 0);
  return sampling;
}

// The id is each process's own.
void Put(WireWriter& out, const Request& request) {
  PutIds(out, request.prompt);
  Put(out, request.sampling);
  out.Put(request.max_tokens);
  PutIds(out, request.stop_token_ids);
  out.Put(static_cast<int32_t>(request.prompt_logprobs));
  out.Put(std::string_view(request.cache_salt));
  out.Put(static_cast<uint8_t>(request.session));
  out.PutOptional(request.peer, [](WireWriter& w, const PrefixPeer& peer) {
    w.Put(peer.address);
    w.Put(peer.pages);
  });
}
Request GetRequest(WireReader& in) {
  Request request;
  request.prompt = GetIds(in);
  request.sampling = GetSampling(in);
  request.max_tokens = in.Get<int64_t>();
  request.stop_token_ids = GetIds(in);
  request.prompt_logprobs = in.Get<int32_t>();
  request.cache_salt = in.GetText();
  in.Require(request.cache_salt.size() <= kMaxCacheSaltBytes);
  request.session = in.Get<SessionState>(kSessionStates);
  request.peer = in.GetOptional<PrefixPeer>([](WireReader& r) {
    PrefixPeer peer{.address = r.GetText()};
    peer.pages = r.GetCount();
    r.Require(peer.address.size() <= kMaxPeerAddressBytes);
    return peer;
  });
  return request;
}

// ---- The hand-off's

void Put(WireWriter& out, const ReserveMessage& m) {
  Put(out, m.id);
  Put(out, m.request);
  Put(out, m.prefill);
}
void Get(WireReader& in, ReserveMessage& m) {
  m.id = GetTransfer(in);
  m.request = GetRequest(in);
  m.prefill = GetNode(in);
}
void Put(WireWriter& out, const ReservedMessage& m) {
  Put(out, m.id);
  PutIds(out, m.pages);
  out.Put(m.present);
}
void Get(WireReader& in, ReservedMessage& m) {
  m.id = GetTransfer(in);
  m.pages = GetIds(in);
  m.present = in.GetCount();
  in.Require(m.present <= static_cast<int64_t>(m.pages.size()));
}
void Put(WireWriter& out, const PrefillMessage& m) {
  Put(out, m.id);
  Put(out, m.request);
  Put(out, m.decode);
  PutIds(out, m.pages);
  out.Put(m.present);
}
void Get(WireReader& in, PrefillMessage& m) {
  m.id = GetTransfer(in);
  m.request = GetRequest(in);
  m.decode = GetNode(in);
  m.pages = GetIds(in);
  m.present = in.GetCount();
  in.Require(m.present <= static_cast<int64_t>(m.pages.size()));
}
constexpr int64_t kMostPages = int64_t{1} << 32;
void Put(WireWriter& out, const PagesFound& found) {
  for (const int64_t pages : found) out.Put(pages);
}
PagesFound GetFound(WireReader& in) {
  PagesFound found;
  for (int64_t& pages : found) {
    pages = in.GetCount();
    in.Require(pages <= kMostPages);
  }
  return found;
}
void Put(WireWriter& out, const HandoverMessage& m) {
  Put(out, m.id);
  Put(out, m.first);
  PutTokens(out, m.prompt_scores);
  Put(out, m.found);
  out.Put(m.cached_tokens);
}
void Get(WireReader& in, HandoverMessage& m) {
  m.id = GetTransfer(in);
  m.first = GetToken(in);
  m.prompt_scores = GetTokens(in);
  m.found = GetFound(in);
  m.cached_tokens = in.GetCount();
}
void Put(WireWriter& out, const ServeMessage& m) {
  Put(out, m.id);
  Put(out, m.request);
}
void Get(WireReader& in, ServeMessage& m) {
  m.id = GetTransfer(in);
  m.request = GetRequest(in);
}
constexpr int kFinishReasons = static_cast<int>(FinishReason::kError) + 1;
void Put(WireWriter& out, const TokensMessage& m) {
  Put(out, m.id);
  out.Put(m.start);
  PutTokens(out, m.tokens);
  PutTokens(out, m.prompt_scores);
  out.PutOptional(m.finish, [](WireWriter& w, FinishReason r) { w.Put(static_cast<uint8_t>(r)); });
  out.PutOptional(m.error, [](WireWriter& w, const Error& e) { Put(w, e); });
  out.PutOptional(m.found, [](WireWriter& w, const PagesFound& found) { Put(w, found); });
  out.Put(m.cached_tokens);
}
void Get(WireReader& in, TokensMessage& m) {
  m.id = GetTransfer(in);
  m.start = in.GetCount();
  m.tokens = GetTokens(in);
  m.prompt_scores = GetTokens(in);
  m.finish = in.GetOptional<FinishReason>(
      [](WireReader& r) { return r.Get<FinishReason>(kFinishReasons); });
  m.error = in.GetOptional<Error>(GetError);
  m.found = in.GetOptional<PagesFound>(GetFound);
  m.cached_tokens = in.GetCount();
}
void Put(WireWriter& out, const RefusedMessage& m) {
  Put(out, m.id);
  Put(out, m.error);
}
void Get(WireReader& in, RefusedMessage& m) {
  m.id = GetTransfer(in);
  m.error = GetError(in);
}
void Put(WireWriter& out, const RenewMessage& m) {
  Put(out, m.id);
  out.Put(m.have);
}
void Get(WireReader& in, RenewMessage& m) {
  m.id = GetTransfer(in);
  m.have = in.GetCount();
}
// Taken, Abort, Stopped: the id alone.
template <typename M>
void Put(WireWriter& out, const M& m) {
  Put(out, m.id);
}
template <typename M>
void Get(WireReader& in, M& m) {
  m.id = GetTransfer(in);
}

// ---- The cluster's

void Put(WireWriter& out, const HelloMessage& m) {
  Put(out, m.node);
  out.Put(static_cast<uint8_t>(m.role));
  out.Put(m.name);
  const Compatibility& c = m.compatibility;
  out.Put(c.protocol);
  for (const std::string* text : {&c.model, &c.tokenizer, &c.kv_type, &c.kv_layout}) {
    out.Put(*text);
  }
  out.Put(c.page_tokens);
  out.Put(c.page_format);
  out.Put(m.pages);
  out.Put(m.max_sequences);
  out.Put(m.step_tokens);
  out.Put(m.context);
  out.Put(m.page_bytes);
  out.Put(m.data_address);
  PutBytes(out, m.data_descriptor);
  out.Put(m.gateways);
  for (const std::string* text : {&m.events.live, &m.events.replay, &m.events.topic}) {
    out.Put(*text);
  }
  out.Put(static_cast<uint8_t>(m.pool));
  out.Put(m.layers);
  out.Put(static_cast<uint8_t>(m.reads_peers));
  out.Put(m.exported_at);
}
void Get(WireReader& in, HelloMessage& m) {
  m.node = GetNode(in);
  m.role = in.Get<WorkerRole>(3);
  m.name = in.GetText();
  Compatibility& c = m.compatibility;
  c.protocol = in.Get<uint32_t>();
  for (std::string* text : {&c.model, &c.tokenizer, &c.kv_type, &c.kv_layout}) {
    *text = in.GetText();
  }
  c.page_tokens = in.Get<uint32_t>();
  c.page_format = in.GetText();
  m.pages = in.GetCount();
  m.max_sequences = in.GetCount();
  m.step_tokens = in.GetCount();
  m.context = in.GetCount();
  m.page_bytes = in.GetCount();
  in.Require(m.page_bytes <= int64_t{1} << 32 && m.step_tokens >= 1 &&
             m.step_tokens <= int64_t{1} << 30 && m.context <= INT32_MAX);
  m.data_address = in.GetText();
  m.data_descriptor = GetBytes(in);
  m.gateways = in.Get<uint32_t>();
  for (std::string* text : {&m.events.live, &m.events.replay, &m.events.topic}) {
    *text = in.GetText();
    in.Require(text->size() <= kMostEndpointBytes);
  }
  m.pool = in.GetBool();
  m.layers = in.Get<uint32_t>();
  in.Require(m.layers >= 1 && m.layers <= kMostLayers);
  m.reads_peers = in.GetBool();
  m.exported_at = in.GetText();
  in.Require(m.exported_at.size() <= kMaxPeerAddressBytes);
}
void Put(WireWriter& out, const WelcomeMessage& m) { Put(out, m.gateway); }
void Get(WireReader& in, WelcomeMessage& m) { m.gateway = GetNode(in); }
void Put(WireWriter& out, const RejectMessage& m) {
  out.Put(m.reason);
  out.Put(static_cast<uint8_t>(m.dead));
}
void Get(WireReader& in, RejectMessage& m) {
  m.reason = in.GetText();
  m.dead = in.GetBool();
}
void Put(WireWriter&, const PingMessage&) {}
void Get(WireReader&, PingMessage&) {}
void Put(WireWriter& out, const PeerUpMessage& m) {
  Put(out, m.node);
  out.Put(m.data_address);
  PutBytes(out, m.data_descriptor);
}
void Get(WireReader& in, PeerUpMessage& m) {
  m.node = GetNode(in);
  m.data_address = in.GetText();
  m.data_descriptor = GetBytes(in);
}
constexpr int kPeerLosses = static_cast<int>(PeerLoss::kConfirmed) + 1;
void Put(WireWriter& out, const PeerGoneMessage& m) {
  Put(out, m.node);
  out.Put(static_cast<uint8_t>(m.loss));
}
void Get(WireReader& in, PeerGoneMessage& m) {
  m.node = GetNode(in);
  m.loss = in.Get<PeerLoss>(kPeerLosses);
}
void Put(WireWriter& out, const LeaveMessage& m) {
  out.Put(m.drain.value);
  out.Put(static_cast<uint8_t>(m.now));
}
void Get(WireReader& in, LeaveMessage& m) {
  m.drain = Seconds(in.GetDouble());
  in.Require(m.drain >= Seconds(0) && m.drain <= kLongestDrain);
  m.now = in.GetBool();
}

void Put(WireWriter& out, const QueryMessage& m) {
  out.PutList(m.words, [](WireWriter& w, const std::string& word) { w.Put(word); });
}
void Get(WireReader& in, QueryMessage& m) {
  m.words = in.GetList<std::string>(4, [](WireReader& r) { return r.GetText(); });
}
void Put(WireWriter& out, const AnswerMessage& m) {
  out.Put(static_cast<uint8_t>(m.ok));
  out.Put(m.text);
}
void Get(WireReader& in, AnswerMessage& m) {
  m.ok = in.GetBool();
  m.text = in.GetText();
}

// The alternative's number, then its fields.
template <typename Variant>
void PutVariant(WireWriter& out, const Variant& message);
template <typename Variant, size_t kIndex = 0>
void GetVariant(WireReader& in, size_t index, Variant& message);

void Put(WireWriter& out, const RelayMessage& m) {
  Put(out, m.from);
  Put(out, m.to);
  PutVariant(out, m.message);
}
void Get(WireReader& in, RelayMessage& m) {
  m.from = GetNode(in);
  m.to = GetNode(in);
  const size_t index = in.Get<uint8_t>();
  GetVariant(in, index, m.message);
}

template <typename Variant>
void PutVariant(WireWriter& out, const Variant& message) {
  out.Put(static_cast<uint8_t>(message.index()));
  std::visit([&](const auto& m) { Put(out, m); }, message);
}

template <typename Variant, size_t kIndex>
void GetVariant(WireReader& in, size_t index, Variant& message) {
  if constexpr (kIndex == std::variant_size_v<Variant>) {
    in.Get<WorkerRole>(0);  // No such alternative: the reader has failed.
  } else {
    if (index != kIndex) return GetVariant<Variant, kIndex + 1>(in, index, message);
    Get(in, message.template emplace<kIndex>());
  }
}

std::string Shown(const std::string& hash) { return hash.substr(0, 16); }

}  // namespace

std::string Compatibility::DifferenceFrom(const Compatibility& other) const {
  const auto differs = [](const char* what, const std::string& here, const std::string& there) {
    return Format("{} differs: {} here, {} there", what, Shown(here), Shown(there));
  };
  if (protocol != other.protocol) {
    return Format("the protocol differs: {} here, {} there; run the same version of divisi",
                  protocol, other.protocol);
  }
  if (model != other.model) return differs("the model", model, other.model);
  if (tokenizer != other.tokenizer) return differs("the tokenizer", tokenizer, other.tokenizer);
  if (kv_type != other.kv_type) return differs("the KV type", kv_type, other.kv_type);
  if (kv_layout != other.kv_layout) return differs("the KV layout", kv_layout, other.kv_layout);
  if (page_tokens != other.page_tokens) {
    return Format("the page size differs: {} tokens here, {} there", page_tokens,
                  other.page_tokens);
  }
  if (page_format != other.page_format) {
    return Format("the page format differs: {} here, {} there", page_format, other.page_format);
  }
  return "";
}

std::vector<std::byte> EncodeClusterMessage(const ClusterMessage& message) {
  WireWriter out;
  PutVariant(out, message);
  return out.Take();
}

Result<ClusterMessage> DecodeClusterMessage(std::span<const std::byte> bytes) {
  WireReader in(bytes);
  ClusterMessage message;
  const size_t index = in.Get<uint8_t>();
  GetVariant(in, index, message);
  if (in.Done()) return message;
  return Error{Code::kDataLoss, Format("{} bytes are no message of this protocol", bytes.size())};
}

}  // namespace divisi
