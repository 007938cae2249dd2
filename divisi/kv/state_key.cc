#include "divisi/kv/state_key.h"

#include "divisi/core/check.h"
#include "divisi/kv/key_fields.h"

namespace divisi {

BlockKey ImageKey(const KeySpace& encoder, std::span<const std::byte> content) {
  KeyFields fields("divisi.image.1");
  fields.Key(RootKey(encoder));
  fields.Bytes(content);
  return fields.Finish();
}

BlockKey StateKey(const BlockKey& prefix, std::span<const TokenId> rest,
                  const StateMoment& moment) {
  CHECK(rest.size() == moment.position % kBlockTokens, "{} tokens after the last page before {}",
        rest.size(), moment.position);
  KeyFields fields("divisi.state.1");
  fields.Key(prefix);
  fields.Tokens(rest);
  fields.Whole(moment.position);
  fields.Whole(moment.window);
  fields.Whole(moment.update);
  return fields.Finish();
}

}  // namespace divisi
