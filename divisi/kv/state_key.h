// Names of states that are no KV pages: an image's embeddings, and what a window or a recurrence
// has become after some tokens. Each kind's key begins with a tag of its own, so none is ever taken
// for another, nor for a page (block_key.h); objects say their kind, too (StateKind,
// page_object.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "divisi/kv/block_key.h"

namespace divisi {

// Of the embeddings that an encoder makes of an image. They depend on nothing else of a prompt.
//   SHA-256 over the fields tag "divisi.image.1", root, content.
// encoder: the key space of the encoder's weights, its settings among them.
// content: a digest of what the encoder is given, after all preprocessing.
BlockKey ImageKey(const KeySpace& encoder, std::span<const std::byte> content);

// Of a state that holds what was made of the tokens so far, and not one entry for each: where it
// stands and which of its updates it is are part of it, since it can't be cut or joined as pages
// can.
struct StateMoment {
  uint64_t position = 0;  // Tokens before it: all of them count, also beyond a window.
  uint64_t window = 0;    // Of tokens that it holds; 0: a recurrence over all.
  uint64_t update = 0;    // Updates of the state up to here, where one covers several tokens.
};
//   SHA-256 over the fields tag "divisi.state.1", prefix, rest, position, window, update.
// prefix: the key of the last full page before the position, or the root. rest: the tokens after
// that page.
// Requires: rest.size() == moment.position % kBlockTokens.
BlockKey StateKey(const BlockKey& prefix, std::span<const TokenId> rest, const StateMoment& moment);

}  // namespace divisi
