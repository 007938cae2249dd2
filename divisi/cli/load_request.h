// The bytes that a load run sends: completion requests as an OpenAI client would make them, and
// broken ones. Pure text; load_client.h sends it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "divisi/core/ids.h"
#include "divisi/core/result.h"

namespace divisi {

// Where a server is: "http://host:port/prefix" taken apart.
struct HttpAddress {
  std::string host;
  std::string port;
  std::string prefix;  // "" or "/some/path", before "/v1/...".

  std::string Url() const;
};

// Accepts a base with or without the trailing "/v1" (clients differ in that).
// Errors: kInvalidArgument for what is no such URL; kUnimplemented for https.
Result<HttpAddress> ParseBaseUrl(std::string_view url);

// A whole HTTP/1.1 request on a connection that is kept. `body` empty: none is announced.
std::string HttpRequestText(const HttpAddress& address, std::string_view method,
                            std::string_view path, std::string_view api_key, std::string_view body);

struct CompletionRequest {
  std::string_view model;
  bool chat = false;
  std::span<const TokenId> prompt;  // For chat: numbers of words (ChatText).
  int64_t output_tokens = 1;
  std::optional<double> temperature;
  bool ignore_eos = true;
};

// "/v1/completions" or "/v1/chat/completions".
std::string_view CompletionPath(bool chat);
// A streaming request's JSON, asking for usage at the end.
std::string CompletionBody(const CompletionRequest& request);

// Chat prompts are text: word ids[i] of a list of kChatWords common words, with blanks between. How
// many tokens that is, the server's usage says (about one a word).
inline constexpr int kChatWords = 64;
std::string ChatText(std::span<const TokenId> ids);

// Ordinary prose, whose token ids are a safe alphabet for random prompts with any tokenizer.
std::string_view SampleProse();

// Requests that a server must refuse without harm to others.
struct BrokenRequest {
  std::string_view name;
  std::string text;
  bool incomplete = false;  // The rest never comes: only the client's leaving ends it.
};
std::vector<BrokenRequest> BrokenRequests(const HttpAddress& address, std::string_view model,
                                          std::string_view api_key);

}  // namespace divisi
