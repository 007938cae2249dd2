#include "divisi/kv/block_key.h"

#include "divisi/core/check.h"
#include "divisi/kv/key_fields.h"

namespace divisi {

std::string BlockKey::Hex() const { return divisi::Hex(bytes); }

BlockKey RootKey(const KeySpace& space) {
  KeyFields fields("divisi.key-space.1");
  fields.Bytes(std::as_bytes(std::span(space.model_fingerprint)));
  fields.Text(space.adapter);
  fields.Text(space.page_format);
  fields.Text(space.tenant_salt);
  return fields.Finish();
}

BlockKey PageKey(const BlockKey& parent, std::span<const TokenId> tokens) {
  CHECK(tokens.size() == kBlockTokens, "a page of {} tokens", tokens.size());
  KeyFields fields("divisi.page.1");
  fields.Key(parent);
  fields.Tokens(tokens);
  return fields.Finish();
}

void ExtendKeys(const BlockKey& root, std::span<const TokenId> tokens, size_t pages,
                std::vector<BlockKey>& keys) {
  CHECK(pages * kBlockTokens <= tokens.size(), "{} pages of {} tokens", pages, tokens.size());
  while (keys.size() < pages) {
    const BlockKey& parent = keys.empty() ? root : keys.back();
    keys.push_back(PageKey(parent, tokens.subspan(keys.size() * kBlockTokens, kBlockTokens)));
  }
}

}  // namespace divisi
