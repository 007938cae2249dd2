#include "divisi/cli/load_request.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "divisi/core/format.h"
#include "divisi/core/json.h"

namespace divisi {
namespace {

constexpr std::array<std::string_view, kChatWords> kWords = {
    "the",  "of",    "and",   "to",   "in",   "is",    "you",   "that",  "it",   "he",    "was",
    "for",  "on",    "are",   "as",   "with", "his",   "they",  "at",    "be",   "this",  "have",
    "from", "or",    "one",   "had",  "by",   "word",  "but",   "not",   "what", "all",   "were",
    "we",   "when",  "your",  "can",  "said", "there", "use",   "an",    "each", "which", "she",
    "do",   "how",   "their", "if",   "will", "up",    "other", "about", "out",  "many",  "then",
    "them", "these", "so",    "some", "her",  "would", "make",  "like",  "him"};

bool IsPort(std::string_view text) {
  int port = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), port);
  return status == std::errc() && end == text.data() + text.size() && port >= 1 && port <= 65535;
}

// Nothing that could end a request line or header early.
bool IsPlain(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c < 127; });
}

}  // namespace

std::string HttpAddress::Url() const {
  const bool v6 = host.find(':') != std::string::npos;
  return Format("http://{}{}{}:{}{}", v6 ? "[" : "", host, v6 ? "]" : "", port, prefix);
}

Result<HttpAddress> ParseBaseUrl(std::string_view url) {
  const std::string_view whole = url;
  const auto bad = [&](std::string_view reason) {
    return Error{Code::kInvalidArgument,
                 Format("--base-url '{}': {}; expected http://HOST:PORT", whole, reason)};
  };
  if (url.starts_with("https://")) {
    return Error{Code::kUnimplemented,
                 "--base-url: https is not supported; use http, or put a TLS proxy before it"};
  }
  if (!url.starts_with("http://")) return bad("no http://");
  if (!IsPlain(url)) return bad("blanks or special characters");
  url.remove_prefix(7);
  HttpAddress address;
  const size_t slash = std::min(url.find('/'), url.size());
  address.prefix = url.substr(slash);
  while (address.prefix.ends_with('/')) address.prefix.pop_back();
  if (address.prefix.ends_with("/v1")) address.prefix.resize(address.prefix.size() - 3);
  std::string_view place = url.substr(0, slash);
  if (place.starts_with('[')) {
    const size_t close = place.find(']');
    if (close == std::string_view::npos) return bad("'[' without ']'");
    address.host = place.substr(1, close - 1);
    place.remove_prefix(close + 1);
  } else {
    const size_t colon = std::min(place.find(':'), place.size());
    address.host = place.substr(0, colon);
    place.remove_prefix(colon);
  }
  if (address.host.empty()) return bad("no host");
  address.port = place.empty() ? "80" : std::string(place.substr(1));
  if (!place.empty() && (place.front() != ':' || !IsPort(address.port))) return bad("no such port");
  return address;
}

std::string HttpRequestText(const HttpAddress& address, std::string_view method,
                            std::string_view path, std::string_view api_key,
                            std::string_view body) {
  std::string text = Format("{} {}{} HTTP/1.1\r\nHost: {}:{}\r\nUser-Agent: divisi-bench\r\n",
                            method, address.prefix, path, address.host, address.port);
  if (!api_key.empty()) text += Format("Authorization: Bearer {}\r\n", api_key);
  if (!body.empty()) {
    text += Format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  }
  text += "\r\n";
  text += body;
  return text;
}

std::string_view CompletionPath(bool chat) {
  return chat ? "/v1/chat/completions" : "/v1/completions";
}

std::string CompletionBody(const CompletionRequest& request) {
  Json body;
  body.Set("model", request.model);
  if (request.chat) {
    Json message;
    message.Set("role", "user");
    message.Set("content", ChatText(request.prompt));
    body.Set("messages", Json::Array{message});
    body.Set("max_completion_tokens", request.output_tokens);
  } else {
    Json::Array ids(request.prompt.begin(), request.prompt.end());
    body.Set("prompt", std::move(ids));
    body.Set("max_tokens", request.output_tokens);
  }
  body.Set("stream", true);
  body.Set("stream_options", Json::Object{{"include_usage", true}});
  if (request.temperature) body.Set("temperature", *request.temperature);
  if (request.ignore_eos) body.Set("ignore_eos", true);
  return body.Dump();
}

std::string ChatText(std::span<const TokenId> ids) {
  std::string text;
  for (const TokenId id : ids) {
    if (!text.empty()) text += ' ';
    text += kWords[static_cast<size_t>(id) % kWords.size()];
  }
  return text;
}

std::string_view SampleProse() {
  return "On a clear morning in early spring, two travellers met where the northern road crosses "
         "the "
         "river. One carried letters; the other, a basket of apples and a question about the price "
         "of bread in the city. They sat down under a tree, shared what they had, and talked about "
         "weather, music, numbers, ships, kings, gardens, machines and the long history of small "
         "mistakes. \"Nothing is ever finished,\" said the older one, \"but most things can be "
         "made "
         "a little better before evening.\" When the bell rang 12 times they stood up, counted the "
         "apples (7 were left), and went on: one toward the hills, the other toward the sea.";
}

std::vector<BrokenRequest> BrokenRequests(const HttpAddress& address, std::string_view model,
                                          std::string_view api_key) {
  std::vector<BrokenRequest> broken;
  const auto post = [&](std::string_view name, std::string_view body) {
    broken.push_back(
        {name, HttpRequestText(address, "POST", "/v1/completions", api_key, body), false});
  };
  const auto ask = [&](std::string_view member) {
    return Format(R"({{"model":{},"prompt":"x","max_tokens":1,{}}})", Json(model).Dump(), member);
  };
  post("half a JSON value", R"({"prompt": "Once)");
  post("no JSON", "prompt=Once+upon+a+time");
  post("bytes that are not UTF-8", "{\"prompt\": \"\xff\xfe\xc0\"}");
  post("half a surrogate pair", ask(R"("user": "\ud800")"));
  post("deep nesting", std::string(5000, '[') + std::string(5000, ']'));
  post("a number beyond any type", ask(R"("seed": 1e999999)"));
  post("negative max_tokens", ask(R"("max_tokens": -1)"));
  post("absurd temperature", ask(R"("temperature": -1e30)"));
  post("prompt of a wrong type", ask(R"("prompt": {"a": 1})"));
  post("token ids outside the vocabulary", ask(R"("prompt": [-1, 999999999])"));
  post("unknown model", R"({"model": "no such model", "prompt": "x"})");

  const std::string head = Format("POST {}/v1/completions HTTP/1.1\r\nHost: {}:{}\r\n",
                                  address.prefix, address.host, address.port);
  const std::string key =
      api_key.empty() ? std::string() : Format("Authorization: Bearer {}\r\n", api_key);
  broken.push_back({"no HTTP", "\x16\x03\x01\x02garbage\r\n\r\n", false});
  broken.push_back(
      {"unknown path", HttpRequestText(address, "GET", "/v1/nothing", api_key, ""), false});
  broken.push_back(
      {"wrong method", HttpRequestText(address, "DELETE", "/v1/completions", api_key, ""), false});
  broken.push_back(
      {"endless header", head + "X-Long: " + std::string(1 << 17, 'x') + "\r\n\r\n", false});
  broken.push_back({"negative length", head + key + "Content-Length: -5\r\n\r\n{}", false});
  broken.push_back(
      {"absurd length", head + key + "Content-Length: 99999999999999\r\n\r\n{}", false});
  broken.push_back(
      {"bad chunk", head + key + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", false});
  broken.push_back({"half a header", head.substr(0, head.size() - 8), true});
  broken.push_back({"half a body", head + key + "Content-Length: 1000\r\n\r\n{\"prompt\":", true});
  return broken;
}

}  // namespace divisi
