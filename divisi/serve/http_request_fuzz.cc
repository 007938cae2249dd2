// Any bytes as a connection's input: through the parser, in one piece and in small ones, and each
// request through the gateway with a backend that echoes prompts. Both ways must see the same
// requests, and each request must be answered once, whole, with a status that fits.
#include "divisi/serve/byte_tokenizer.h"
#include "divisi/serve/gateway.h"
#include "divisi/serve/http_parser.h"
#include "divisi/serve/scripted_backend.h"

namespace divisi {
namespace {

// Below the size from which bodies go to the gateway's worker, whose answer comes later.
constexpr size_t kMaxBody = 16 << 10;
constexpr HttpParser::Options kLimits{.max_head_bytes = 4096, .max_body_bytes = kMaxBody};

struct Front {
  Tokenizer tokenizer = MakeByteTokenizer();
  ManualClock clock;
  Logger logger{{.least = LogLevel::kError}};
  ScriptedBackend backend;
  Gateway gateway{{.model_names = {"tiny"}}, clock, logger};

  Front() {
    backend.EchoPrompts();
    GatewayModel model;
    model.backend = &backend;
    model.tokenizer = &tokenizer;
    model.render_chat = [](const Json& variables, double) -> Result<std::string> {
      return variables.Find("messages")->Dump();
    };
    model.eos_token_ids = {kByteTokenizerEnd};
    model.vocab_size = tokenizer.vocab_size();
    model.max_model_len = 2048;
    gateway.SetModel(std::move(model));
  }
};

void CheckAnswer(const RecordingExchange& exchange) {
  CHECK(exchange.ended(), "a request without an answer");
  if (exchange.head()) {
    CHECK(exchange.head()->status == 200);
    const std::string& stream = exchange.stream();
    CHECK(stream.ends_with("\n\n") && stream.starts_with("data: "));
    CHECK(stream.ends_with("data: [DONE]\n\n"));
    return;
  }
  const HttpResponse& response = *exchange.response();
  CHECK(response.status == 200 || response.status == 204 ||
            (response.status >= 400 && response.status < 500),
        "status {}", response.status);
  for (const auto& [name, value] : response.headers) {
    CHECK(value.find_first_of("\r\n") == std::string::npos, "a header of two lines");
  }
}

// The requests in `bytes`, each given in pieces of at most `step`; the last entry is the end state.
std::vector<std::string> Requests(std::string_view bytes, size_t step, Front* front) {
  BodyBudget bodies(kMaxBody);
  HttpParser parser(kLimits, bodies);
  std::vector<std::string> seen;
  std::string input;
  while (true) {
    const size_t taken = parser.Push(input);
    input.erase(0, taken);
    if (parser.state() == HttpParser::State::kFailed) {
      const int status = parser.error_response().status;
      CHECK(status == 400 || status == 413 || status == 431);
      seen.push_back("failed");
      return seen;
    }
    if (parser.state() == HttpParser::State::kDone) {
      HttpParser::Taken request = parser.Take();
      CHECK(request.request.body.size() <= kMaxBody);
      seen.push_back(request.request.method + " " + request.request.target + " " +
                     request.request.body);
      if (front != nullptr) {
        auto exchange = std::make_shared<RecordingExchange>();
        front->gateway.Handle(std::move(request.request), exchange);
        exchange->RunPosted();
        CheckAnswer(*exchange);
      }
      continue;
    }
    if (bytes.empty()) return seen;
    const size_t count = std::min(step, bytes.size());
    input += bytes.substr(0, count);
    bytes.remove_prefix(count);
  }
}

}  // namespace
}  // namespace divisi

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static divisi::Front front;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto whole = divisi::Requests(bytes, bytes.size(), &front);
  const auto pieces = divisi::Requests(bytes, 1 + (size > 0 ? data[size - 1] % 64 : 0), nullptr);
  // Where the bytes break a rule, a longer piece may break it before a request in it was taken.
  if (whole.empty() || whole.back() != "failed")
    CHECK(whole == pieces, "cutting changed the requests");
  return 0;
}
