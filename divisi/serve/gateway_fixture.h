// For tests of the gateway: one with a real tokenizer, whose backend the test scripts.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "divisi/serve/gateway.h"
#include "divisi/serve/scripted_backend.h"

namespace divisi {

class GatewayTest : public testing::Test {
 protected:
  GatewayTest()
      : tokenizer_(
            *Tokenizer::Load(std::filesystem::path(DIVISI_SOURCE_DIR) / "models/tiny-qwen3")) {
    gateway_ = MakeGateway({.model_names = {"tiny", "alias"}, .version = "1.2.3"});
    gateway_->SetModel(Model());
  }

  std::unique_ptr<Gateway> MakeGateway(GatewayOptions options) {
    return std::make_unique<Gateway>(std::move(options), clock_, logger_);
  }

  GatewayModel Model() {
    GatewayModel model;
    model.backend = &backend_;
    model.tokenizer = &tokenizer_;
    model.render_chat = [](const Json& variables, double) -> Result<std::string> {
      std::string text;
      for (const Json& message : variables.Find("messages")->as_array()) {
        if (message.Find("role")->as_string() == "tool") {
          return Error{Code::kInvalidArgument, "no tools here"};
        }
        text +=
            message.Find("role")->as_string() + ":" + message.Find("content")->as_string() + "\n";
      }
      return text;
    };
    model.eos_token_ids = {kEos};
    model.vocab_size = tokenizer_.vocab_size();
    model.max_model_len = 64;
    return model;
  }

  std::shared_ptr<RecordingExchange> Call(std::string method, std::string target, std::string body,
                                          HttpHeaders headers = {}) {
    auto exchange = std::make_shared<RecordingExchange>();
    gateway_->Handle({.method = std::move(method),
                      .target = std::move(target),
                      .headers = std::move(headers),
                      .body = std::move(body),
                      .peer = "test"},
                     exchange);
    exchange->RunPosted();
    return exchange;
  }
  std::shared_ptr<RecordingExchange> Complete(std::string body) {
    return Call("POST", "/v1/completions", std::move(body));
  }

  // The events of a stream: JSON, or the text [DONE].
  static std::vector<Json> Events(const std::string& stream) {
    std::vector<Json> events;
    for (size_t at = 0; at < stream.size();) {
      const size_t end = stream.find("\n\n", at);
      EXPECT_NE(end, std::string::npos) << "an unfinished event in " << stream;
      EXPECT_EQ(stream.substr(at, 6), "data: ");
      const std::string data = stream.substr(at + 6, end - at - 6);
      events.push_back(data == "[DONE]" ? Json(data) : *Json::Parse(data));
      at = end + 2;
    }
    return events;
  }
  static Json Body(const RecordingExchange& exchange) {
    return *Json::Parse(exchange.response()->body);
  }
  static std::string ErrorCode(const RecordingExchange& exchange) {
    const Json body = Body(exchange);
    const Json* code = body.Find("error")->Find("code");
    return code->is_string() ? code->as_string() : "";
  }
  static const Json& Choice(const Json& body, size_t index = 0) {
    return body.Find("choices")->as_array().at(index);
  }

  static constexpr TokenId kEos = 2047;  // <|im_end|>
  Tokenizer tokenizer_;
  ManualClock clock_;
  Logger logger_{{.least = LogLevel::kError}};
  ScriptedBackend backend_;
  std::unique_ptr<Gateway> gateway_;
};

}  // namespace divisi
