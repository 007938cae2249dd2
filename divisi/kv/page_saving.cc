#include "divisi/kv/page_saving.h"

namespace divisi {

SaveDone PageSaving::Run(Landing& landing) {
  SaveDone done{.id = save_.id, .key = save_.header.key, .from = save_.from, .to = save_.to};
  PageStore* to = options_.stores.Of(save_.to);
  Result<void> saved = Error{Code::kNotFound, Format("there is no tier {}", TierName(save_.to))};
  if (to != nullptr) saved = save_.from == Tier::kDevice ? FromDevice(landing, *to) : FromTier(*to);
  done.ok = saved.ok();
  done.source_bad = source_bad_;
  if (!saved) done.why = saved.error().message;
  return done;
}

Result<void> PageSaving::FromDevice(Landing& landing, PageStore& to) {
  const Seconds start = options_.clock->Now();
  Result<void> saved = Error{Code::kCancelled, "given up"};
  if (to.in_memory()) {
    landing.Land([&] { saved = Put(to, save_.header, save_.payload); });
  } else {
    const bool copied =
        landing.Land([&] { buffer_.assign(save_.payload.begin(), save_.payload.end()); });
    if (copied) saved = Put(to, save_.header, buffer_);
  }
  if (saved.ok() && !begun_) writing_ = options_.clock->Now() - start;
  return saved;
}

Result<void> PageSaving::FromTier(PageStore& to) {
  const Seconds start = options_.clock->Now();
  auto header = ReadSource();
  if (!header) {
    source_bad_ = SaysOfPage(save_.from, header.error().code);
    return header.error();
  }
  const Seconds read = options_.clock->Now();
  reading_ = read - start;
  RETURN_IF_ERROR(Put(to, *header, buffer_));
  if (!begun_) writing_ = options_.clock->Now() - read;
  return {};
}

Result<void> PageSaving::Put(PageStore& to, const PageHeader& header,
                             std::span<const std::byte> payload) {
  if (!later_) return to.Put(header, payload);
  begun_ = true;
  to.BeginPut(header, payload, later_);
  return {};
}

Result<PageHeader> PageSaving::ReadSource() {
  const LoadingTerms& terms = options_.terms;
  PageStore* from = options_.stores.Of(save_.from);
  if (from == nullptr) {
    return Error{Code::kNotFound, Format("there is no tier {}", TierName(save_.from))};
  }
  ASSIGN_OR_RETURN(const auto reader, from->Open(save_.header.key));
  PageHeader asked = reader->header();
  asked.key = save_.header.key;
  asked.shape = terms.shape;
  asked.model = terms.model;
  RETURN_IF_ERROR(CheckIsAsked(reader->header(), asked));
  reader->WillRead(0, terms.shape.layers);
  buffer_.resize(static_cast<size_t>(terms.shape.PayloadBytes()));
  RETURN_IF_ERROR(reader->ReadLayers(0, terms.shape.layers, buffer_));
  return asked;
}

}  // namespace divisi
