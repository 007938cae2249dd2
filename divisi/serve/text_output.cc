#include "divisi/serve/text_output.h"

#include <algorithm>

#include "divisi/core/check.h"
#include "divisi/core/utf8.h"

namespace divisi {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& text : stops) {
    CHECK(!text.empty(), "an empty stop string");
    Stop stop{.text = std::move(text), .fallback = {0, 0}};
    for (size_t k = 1; k < stop.text.size(); ++k) {
      size_t border = stop.fallback[k];
      while (border > 0 && stop.text[k] != stop.text[border]) border = stop.fallback[border];
      stop.fallback.push_back(stop.text[k] == stop.text[border] ? border + 1 : 0);
    }
    stops_.push_back(std::move(stop));
  }
}

StopMatcher::Found StopMatcher::Push(std::string_view text) {
  if (stops_.empty()) {
    consumed_ += text.size();
    return {};
  }
  for (const char byte : text) {
    ++consumed_;
    size_t longest = 0;
    for (Stop& stop : stops_) {
      size_t& k = stop.matched;
      while (k > 0 && byte != stop.text[k]) k = stop.fallback[k];
      if (byte == stop.text[k]) ++k;
      if (k == stop.text.size()) longest = std::max(longest, k);
    }
    if (longest > 0) return {.stopped = true, .begin = consumed_ - longest, .end = consumed_};
  }
  return {};
}

size_t StopMatcher::HeldBytes() const {
  size_t held = 0;
  for (const Stop& stop : stops_) held = std::max(held, stop.matched);
  return held;
}

TextOutput::TextOutput(const Tokenizer& tokenizer, Options options)
    : options_(std::move(options)),
      decoder_(tokenizer, options_.skip_special_tokens),
      matcher_(options_.stop) {}

TextOutput::Piece TextOutput::Push(SampledToken token) {
  std::string text = decoder_.Push(token.token);
  if (options_.keep_tokens) {
    // A token without text of its own (a part of a character, say) goes out with the text after it.
    waiting_.push_back({.token = {.sampled = std::move(token), .text_offset = total_characters_},
                        .begin = total_bytes_,
                        .end = total_bytes_ + std::max<size_t>(text.size(), 1)});
  }
  return Take(std::move(text), false);
}

TextOutput::Piece TextOutput::Finish(std::optional<SampledToken> terminator) {
  Piece piece = Take(decoder_.Finish(), true);
  if (terminator && options_.keep_tokens && !piece.stopped) {
    piece.tokens.push_back({.sampled = *std::move(terminator), .text_offset = total_characters_});
  }
  return piece;
}

TextOutput::Piece TextOutput::Take(std::string text, bool last) {
  Piece piece;
  total_bytes_ += text.size();
  total_characters_ += CountCodePoints(text);
  const StopMatcher::Found found = matcher_.Push(text);
  held_ += text;
  size_t boundary = total_bytes_ - (last ? 0 : matcher_.HeldBytes());
  if (found.stopped) {
    piece.stopped = true;
    boundary = options_.include_stop ? found.end : found.begin;
  }
  CHECK(boundary >= given_bytes_, "text given out up to {}, then cut at {}", given_bytes_,
        boundary);
  const size_t count = boundary - given_bytes_;
  if (count == held_.size()) {
    piece.text = std::move(held_);
    held_.clear();
  } else {
    piece.text = held_.substr(0, count);
    held_.erase(0, count);
  }
  given_bytes_ = boundary;
  ReleaseTokens(boundary, last || piece.stopped, piece);
  return piece;
}

void TextOutput::ReleaseTokens(size_t boundary, bool last, Piece& piece) {
  while (!waiting_.empty()) {
    const Waiting& front = waiting_.front();
    // At the end, a token that the cut runs through has given a part of its text and counts; one
    // that lies behind the cut does not.
    const bool cut_off = piece.stopped && front.begin >= boundary;
    if (cut_off || (!last && front.end > boundary)) break;
    piece.tokens.push_back(std::move(waiting_.front().token));
    waiting_.pop_front();
  }
}

}  // namespace divisi
