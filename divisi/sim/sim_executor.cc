#include "divisi/sim/sim_executor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "divisi/core/check.h"
#include "divisi/core/format.h"
#include "divisi/kv/layer_gate.h"

namespace divisi {
namespace {

// The finaliser of SplitMix64 (Steele et al., OOPSLA 2014) over a sum with an odd constant.
uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15ull + b + 0x2545F4914F6CDD1Dull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

float LogprobOf(uint64_t content) { return -static_cast<float>(content % 4096) / 256; }

}  // namespace

SimExecutor::SimExecutor(SimExecutorOptions options, ManualClock* clock)
    : options_(std::move(options)), clock_(clock) {
  CHECK(options_.blocks >= 0 && options_.vocab >= 1);
  if (!options_.contents) return;
  slots_.resize(static_cast<size_t>(options_.blocks * kBlockTokens));
  writer_.resize(static_cast<size_t>(options_.blocks), -1);
}

size_t SimExecutor::PageBytes() { return kBlockTokens * sizeof(Slot); }

std::vector<std::byte> SimExecutor::ReadPage(BlockId block) const {
  CHECK(block >= 0 && block < options_.blocks, "block {}", block);
  std::vector<std::byte> bytes(PageBytes());
  std::memcpy(bytes.data(), &slots_[static_cast<size_t>(block) * kBlockTokens], bytes.size());
  return bytes;
}

void SimExecutor::WritePage(BlockId block, std::span<const std::byte> bytes) {
  CHECK(block >= 0 && block < options_.blocks && bytes.size() == PageBytes(), "block {}", block);
  std::memcpy(&slots_[static_cast<size_t>(block) * kBlockTokens], bytes.data(), bytes.size());
}

void SimExecutor::Fault(std::string what) {
  if (first_fault_.empty()) first_fault_ = std::move(what);
}

SimExecutor::Slot& SimExecutor::SlotAt(const StepSlice& slice, int64_t position) {
  const int64_t block = slice.blocks[static_cast<size_t>(position / kBlockTokens)];
  return slots_[static_cast<size_t>(block * kBlockTokens + position % kBlockTokens)];
}

// CHECKs: what would make this run out of bounds.
void SimExecutor::CheckShape(const StepSlice& slice) {
  const Sequence& sequence = *slice.sequence;
  const int64_t size = static_cast<int64_t>(sequence.tokens.size());
  const int64_t end = slice.start + slice.count;
  CHECK(slice.start >= 0 && slice.count >= 1 && end <= size, "slice [{}, {}) of {}", slice.start,
        end, size);
  CHECK(static_cast<int64_t>(slice.blocks.size()) == PagesFor(end), "{} pages for {} tokens",
        slice.blocks.size(), end);
  for (const BlockId block : slice.blocks) CHECK(block >= 0 && block < options_.blocks);
  const RequestId id = sequence.request.id;
  if (slice.start != sequence.computed) {
    Fault(
        Format("request {}: slice at {} of a sequence at {}", id, slice.start, sequence.computed));
  }
  if (slice.sample != (end == size)) {
    Fault(Format("request {}: sample {} at {} of {}", id, slice.sample, end, size));
  }
}

void SimExecutor::CheckSharing(const StepPlan& plan) {
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    const StepSlice& slice = plan.slices[i];
    for (size_t p = static_cast<size_t>(slice.start / kBlockTokens); p < slice.blocks.size(); ++p) {
      writer_[static_cast<size_t>(slice.blocks[p])] = static_cast<int64_t>(i);
    }
  }
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    for (const BlockId block : plan.slices[i].blocks) {
      const int64_t writer = writer_[static_cast<size_t>(block)];
      if (writer < 0 || writer == static_cast<int64_t>(i)) continue;
      Fault(Format("block {} is written for request {} and held by request {}", block,
                   plan.slices[static_cast<size_t>(writer)].sequence->request.id,
                   plan.slices[i].sequence->request.id));
    }
  }
  for (const StepSlice& slice : plan.slices) {
    for (const BlockId block : slice.blocks) writer_[static_cast<size_t>(block)] = -1;
  }
}

void SimExecutor::Write(const StepSlice& slice) {
  uint64_t content = slice.start == 0 ? 0 : SlotAt(slice, slice.start - 1).content;
  for (int64_t position = slice.start; position < slice.start + slice.count; ++position) {
    const TokenId token = slice.sequence->tokens[static_cast<size_t>(position)];
    content = Mix(content, (static_cast<uint64_t>(position) << 32) | static_cast<uint32_t>(token));
    SlotAt(slice, position) = {.content = content, .position = position};
  }
}

uint64_t SimExecutor::ReadAll(const StepSlice& slice) {
  uint64_t digest = 0;
  const int64_t end = slice.start + slice.count;
  for (int64_t page_start = 0; page_start < end; page_start += kBlockTokens) {
    const int64_t last = std::min<int64_t>(page_start + kBlockTokens, end) - 1;
    const Slot& slot = SlotAt(slice, last);
    if (slot.position != last) {
      Fault(Format("request {}: position {} is read where {} was written",
                   slice.sequence->request.id, last, slot.position));
    }
    digest = Mix(digest, slot.content);
  }
  return digest;
}

SliceResult SimExecutor::Answer(const StepSlice& slice) {
  SliceResult result;
  const Request& request = slice.sequence->request;
  const uint64_t digest = ReadAll(slice);
  const int64_t end = slice.start + slice.count;
  const auto& tokens = slice.sequence->tokens;
  if (std::count(tokens.begin() + slice.start, tokens.begin() + end, options_.failing_token) > 0) {
    result.failure = Error{Code::kInternal, "the failing token"};
    return result;
  }
  if (slice.sample) {
    const uint64_t draw = Mix(Mix(digest, request.sampling.seed), static_cast<uint64_t>(end));
    result.sampled =
        SampledToken{.token = static_cast<TokenId>(draw % static_cast<uint64_t>(options_.vocab))};
    if (request.sampling.top_logprobs >= 0) result.sampled->logprob = LogprobOf(draw);
  }
  if (request.prompt_logprobs < 0) return result;
  const int64_t scored_end = std::min(end, static_cast<int64_t>(request.prompt.size()) - 1);
  for (int64_t position = slice.start; position < scored_end; ++position) {
    result.prompt_scores.push_back({.token = request.prompt[static_cast<size_t>(position + 1)],
                                    .logprob = LogprobOf(SlotAt(slice, position).content)});
  }
  return result;
}

Seconds SimExecutor::TimeOf(const StepPlan& plan) const {
  if (options_.time) return options_.time(plan);
  Seconds time = options_.rates.step;
  for (const StepSlice& slice : plan.slices) {
    time += options_.rates.per_context_token * static_cast<double>(slice.start + slice.count);
  }
  return time + options_.rates.per_token * static_cast<double>(plan.tokens);
}

// The tokens of a model that says the same whatever it is asked.
std::vector<SliceResult> SimExecutor::Draw(const StepPlan& plan) const {
  std::vector<SliceResult> results(plan.slices.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const StepSlice& slice = plan.slices[i];
    if (!slice.sample) continue;
    const uint64_t draw =
        Mix(slice.sequence->request.id, static_cast<uint64_t>(slice.start + slice.count));
    results[i].sampled =
        SampledToken{.token = static_cast<TokenId>(draw % static_cast<uint64_t>(options_.vocab))};
  }
  return results;
}

void SimExecutor::Check(const StepPlan& plan) {
  int64_t tokens = 0;
  for (const StepSlice& slice : plan.slices) {
    CheckShape(slice);
    tokens += slice.count;
  }
  if (tokens != plan.tokens) Fault(Format("a plan of {} tokens says {}", tokens, plan.tokens));
  CheckSharing(plan);
}

std::vector<SliceResult> SimExecutor::Execute(const StepPlan& plan) {
  const Seconds time = TimeOf(plan);
  busy_ += time;
  if (clock_ != nullptr) clock_->Advance(time);
  if (!options_.contents) return Draw(plan);
  Check(plan);
  // All writes before any read, as a layer of a real batch does.
  for (const StepSlice& slice : plan.slices) Write(slice);
  std::vector<SliceResult> results;
  results.reserve(plan.slices.size());
  for (const StepSlice& slice : plan.slices) {
    // What it wrote is its own pages' alone.
    results.push_back(IsLost(slice) ? SliceResult{.lost = true} : Answer(slice));
  }
  return results;
}

bool SimExecutor::IsLost(const StepSlice& slice) const {
  return slice.gate != nullptr && slice.gate->opened() < options_.layers;
}

bool SimExecutor::GatesAreDecided(const StepPlan& plan) const {
  return std::ranges::all_of(plan.slices, [this](const StepSlice& slice) {
    return !IsLost(slice) || slice.gate->failed();
  });
}

}  // namespace divisi
