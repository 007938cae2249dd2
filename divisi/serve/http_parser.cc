#include "divisi/serve/http_parser.h"

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "divisi/core/check.h"
#include "divisi/serve/openai_error.h"

namespace divisi {
namespace http = boost::beast::http;

namespace {

// Why a head that Beast takes is refused all the same; empty: it is not.
// A request whose length two readers may see differently carries a second one past a proxy, so
// only the one coding that this server undoes is let in (RFC 9112, sections 6.1 and 6.3).
std::string_view HeadFault(const http::fields& fields, unsigned version) {
  const auto encoding = fields.find(http::field::transfer_encoding);
  if (encoding != fields.end()) {
    if (version < 11) return "HTTP/1.0 has no Transfer-Encoding";
    if (fields.count(http::field::transfer_encoding) > 1 ||
        !EqualsIgnoringCase(encoding->value(), "chunked")) {
      return "the only Transfer-Encoding served is 'chunked'; send the body as it is";
    }
  }
  // Section 3.2.
  if (version >= 11 && fields.count(http::field::host) != 1) {
    return "an HTTP/1.1 request has one Host header";
  }
  return {};
}

}  // namespace

struct HttpParser::Beast {
  Options options;
  BodyBudget& budget;
  BodyBudget::Share share;
  bool over_budget = false;
  std::optional<http::request_parser<http::string_body>> parser;
  State state = State::kHead;
  boost::system::error_code error;
  std::string_view head_fault;  // HeadFault's words.

  Beast(Options o, BodyBudget& b) : options(o), budget(b) { Restart(); }
  void Restart() {
    parser.emplace();
    parser->header_limit(static_cast<std::uint32_t>(options.max_head_bytes));
    parser->body_limit(options.max_body_bytes);
    // The head alone first: Beast puts a trailer's fields among the head's, where they must not
    // count.
    parser->eager(false);
    state = State::kHead;
  }
  // Nothing follows on this connection, which may stay for a while: it must not hold a body.
  void Fail() {
    Restart();
    share = {};
    state = State::kFailed;
  }
  bool Count() {
    const size_t body = parser->get().body().size();
    return body <= kUncountedBytes || budget.TryGrow(share, body);
  }
};

HttpParser::HttpParser(Options options, BodyBudget& budget)
    : beast_(std::make_unique<Beast>(options, budget)) {}
HttpParser::~HttpParser() = default;

HttpParser::State HttpParser::state() const { return beast_->state; }

size_t HttpParser::Push(std::string_view bytes) {
  size_t taken = 0;
  while (taken < bytes.size() && beast_->state != State::kDone && beast_->state != State::kFailed) {
    auto& parser = *beast_->parser;
    boost::system::error_code error;
    const size_t count =
        parser.put(boost::asio::buffer(bytes.data() + taken, bytes.size() - taken), error);
    taken += count;
    if (beast_->state == State::kHead && parser.is_header_done()) {
      beast_->head_fault = HeadFault(parser.get(), parser.get().version());
      // Before any body, which Beast may have read by its own idea of where that ends.
      if (!beast_->head_fault.empty()) {
        beast_->Fail();
        break;
      }
      parser.eager(true);
    }
    if (error && error != http::error::need_more) {
      beast_->error = error;
      beast_->Fail();
    } else if (!beast_->Count()) {
      beast_->over_budget = true;
      beast_->Fail();
    } else if (parser.is_done()) {
      beast_->state = State::kDone;
    } else if (parser.is_header_done()) {
      beast_->state = State::kBody;
    }
    if (error || count == 0) break;  // need_more: the rest is too little to go on with.
  }
  return taken;
}

bool HttpParser::expects_continue() const {
  if (beast_->state != State::kBody) return false;
  const auto& message = beast_->parser->get();
  return message.version() >= 11 &&
         EqualsIgnoringCase(message[http::field::expect], "100-continue");
}

HttpParser::Taken HttpParser::Take() {
  CHECK(beast_->state == State::kDone, "no complete request to take");
  auto& message = beast_->parser->get();
  Taken taken;
  taken.keep_alive = message.keep_alive();
  taken.http_1_0 = message.version() < 11;
  taken.request.method = std::string(message.method_string());
  taken.request.target = std::string(message.target());
  for (const auto& field : message) {
    taken.request.headers.emplace_back(std::string(field.name_string()),
                                       std::string(field.value()));
  }
  taken.request.body = std::move(message.body());
  taken.request.share = std::exchange(beast_->share, {});
  beast_->Restart();
  return taken;
}

HttpResponse HttpParser::error_response() const {
  CHECK(beast_->state == State::kFailed, "no parse error");
  ApiError error{.status = 400};
  if (beast_->over_budget) {
    error = FromError(
        {Code::kUnavailable, "too many large requests at once; try again in a second"});
  } else if (!beast_->head_fault.empty()) {
    error.message = beast_->head_fault;
  } else if (beast_->error == http::error::body_limit) {
    error.status = 413;
    error.message = Format("the request body is larger than {} bytes, this server's limit",
                           beast_->options.max_body_bytes);
  } else if (beast_->error == http::error::header_limit) {
    error.status = 431;
    error.message = Format("the request's head is larger than {} bytes, this server's limit",
                           beast_->options.max_head_bytes);
  } else {
    error.message = Format("this is not HTTP as this server reads it: {}", beast_->error.message());
  }
  HttpResponse response{.status = error.status,
                        .headers = {{"Content-Type", "application/json"}},
                        .body = ErrorBody(error)};
  if (error.retry_after_seconds > 0) {
    response.headers.emplace_back("Retry-After", Format("{}", error.retry_after_seconds));
  }
  return response;
}

std::string_view HttpRequest::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (EqualsIgnoringCase(key, name)) return value;
  }
  return {};
}

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

const char* HttpReason(int status) {
  return status == 499 ? "Client Closed Request"
                       : http::obsolete_reason(static_cast<http::status>(status)).data();
}

}  // namespace divisi
