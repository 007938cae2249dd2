#include "tests/model_runner.h"

#include <numeric>

namespace divisi {
namespace {

int64_t Positions(const Checkpoint& checkpoint, const ModelRunner::Options& options) {
  return options.max_positions > 0 ? options.max_positions : checkpoint.spec().max_positions;
}

int64_t PageCount(const Transformer& model, const ModelRunner::Options& options) {
  return options.pages > 0 ? options.pages : PagesFor(model.max_positions());
}

}  // namespace

ModelRunner::ModelRunner(const std::filesystem::path& directory, const Options& options)
    : checkpoint(Checkpoint::Open(directory).value()),
      pool(options.threads),
      ops(options.isa, pool),
      model(Transformer::Load(checkpoint, options.compute, Positions(checkpoint, options)).value()),
      pages(KvPages::Create(model.kv_layout(), PageCount(model, options)).value()),
      identity(static_cast<size_t>(pages.pages())) {
  std::iota(identity.begin(), identity.end(), 0);
}

std::vector<float> ModelRunner::Run(std::span<const TokenId> tokens, int64_t start, int64_t rows) {
  const ForwardSequence sequence{
      .tokens = tokens, .start = start, .pages = identity, .logits_rows = rows};
  const std::span<const float> logits = model.Forward({&sequence, 1}, pages, ops);
  return {logits.begin(), logits.end()};
}

}  // namespace divisi
