// divisi explain-route: which workers a gateway chose, or would choose, and what it compared.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "divisi/cli/commands.h"
#include "divisi/cli/control_options.h"
#include "divisi/cli/gateway_query.h"
#include "divisi/cli/route_view.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

struct Options {
  std::string gateway = "127.0.0.1:8001";
  ControlTlsOptions tls;
  int64_t last = 1;
  std::string request;
  int64_t prompt_tokens = 0;
  std::vector<std::string> held;
  bool json = false;
};

std::vector<std::string> WordsOf(const Options& options) {
  if (!options.request.empty()) return {"routes", "request", options.request};
  if (options.prompt_tokens == 0) return {"routes", "last", Format("{}", options.last)};
  std::vector<std::string> words = {"routes", "for", Format("{}", options.prompt_tokens)};
  words.insert(words.end(), options.held.begin(), options.held.end());
  return words;
}

void Run(const Options& options) {
  if (!options.held.empty() && options.prompt_tokens == 0) {
    FailCommand({Code::kInvalidArgument,
                 "--held is of a prompt that might come: give its length "
                 "with --prompt-tokens"});
  }
  auto answers = AskGateways({options.gateway}, options.tls, WordsOf(options));
  if (!answers) FailCommand(answers.error());
  const Result<Json>& answer = answers->front().status;
  if (!answer) FailCommand(answer.error());
  if (options.json) {
    std::printf("%s\n", answer->Dump(2).c_str());
    return;
  }
  const auto text = RoutesText(*answer);
  if (!text) FailCommand(AnotherForm(options.gateway, text.error()));
  std::fputs(text->c_str(), stdout);
}

}  // namespace

void AddExplainRouteCommand(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand(
      "explain-route",
      "Why a gateway chose the workers that it did: every candidate with when it "
      "could start (Q), when its state would be ready (R) and what was left to "
      "compute (C)");
  command.footer(
      "Example: divisi explain-route --last 5\n"
      "         divisi explain-route --prompt-tokens 8448 --held host=8192@worker-1");
  command.add_option("--gateway", options->gateway, "HOST:PORT of the gateway's control port")
      ->capture_default_str();
  auto* last = command.add_option("--last", options->last, "So many of the last choices")
                   ->capture_default_str()
                   ->check(CLI::Range(1, 32));
  auto* request = command
                      .add_option("--request", options->request,
                                  "A request by its X-Request-Id, while it is among the last 256")
                      ->excludes(last);
  command
      .add_option("--prompt-tokens", options->prompt_tokens,
                  "Where a prompt of that length would go now")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->excludes(last)
      ->excludes(request);
  command
      .add_option("--held", options->held,
                  "What if a worker had the first tokens of it: TIER=TOKENS@NAME, with commas; "
                  "tiers are device, host, disk and pool")
      ->delimiter(',');
  command.add_flag("--json", options->json, "The gateway's answer as it is");
  AddControlTlsOptions(command, options->tls);
  command.callback([options] { Run(*options); });
}

}  // namespace divisi
