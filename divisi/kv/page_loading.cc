#include "divisi/kv/page_loading.h"

#include <algorithm>
#include <cstring>

namespace divisi {
namespace {

Error GivenUp() { return {Code::kCancelled, "the load was given up"}; }

constexpr int64_t kMemoryRun = int64_t{64} << 10;
// Pages whose opening is hinted ahead: heads lie scattered over the disk, and each is a read that
// waits.
constexpr size_t kOpenAhead = 32;
constexpr size_t kMostHints = 64;

}  // namespace

const char* TierName(Tier tier) {
  switch (tier) {
    case Tier::kDevice:
      return "device";
    case Tier::kHost:
      return "host";
    case Tier::kDisk:
      return "disk";
    case Tier::kRemote:
      return "remote";
    case Tier::kPeer:
      return "peer";
  }
  return "unknown";
}

bool SaysOfPage(Tier tier, Code code) {
  if (code == Code::kUnavailable) return tier != Tier::kRemote && tier != Tier::kPeer;
  return code != Code::kResourceExhausted && code != Code::kDeadlineExceeded &&
         code != Code::kCancelled;
}

PageStore* TierStores::Of(Tier tier) const {
  switch (tier) {
    case Tier::kDevice:
      return nullptr;
    case Tier::kHost:
      return host.get();
    case Tier::kDisk:
      return disk.get();
    case Tier::kRemote:
      return remote.get();
    case Tier::kPeer:
      return peer.get();
  }
  return nullptr;
}

std::vector<int> LayerGroups(int layers, int most) {
  CHECK(layers >= 1 && most >= 1);
  if (most >= layers) return {layers};
  std::vector<int> rising;
  int left = layers;
  for (int count = 1; count < most && 2 * count <= left; count *= 2) {
    rising.push_back(count);
    left -= 2 * count;
  }
  std::vector<int> groups = rising;
  for (; left > 0; left -= most) groups.push_back(std::min(most, left));
  groups.insert(groups.end(), rising.rbegin(), rising.rend());
  return groups;
}

PageLoading::PageLoading(const PageLoad& load, const TierStores& stores, const LoadingTerms& terms)
    : load_(load), stores_(stores), terms_(terms), usable_(load.pages.size()) {
  const bool in_memory = std::ranges::all_of(load.pages, [&](const LoadedPage& page) {
    const PageStore* store = stores.Of(page.tier);
    return store == nullptr || store->in_memory();
  });
  by_page_ = std::ranges::any_of(load.pages, [&](const LoadedPage& page) {
    const PageStore* store = stores.Of(page.tier);
    return store != nullptr && (store->whole() || (store->staged() && !load.by_layers));
  });
  const int64_t run = in_memory ? kMemoryRun : terms.run.value;
  const int64_t layer = terms.shape.layer_bytes;
  const auto most = std::clamp<int64_t>(run / layer, 1, terms.shape.layers);
  counts_ = LayerGroups(terms.shape.layers, static_cast<int>(most));
  for (int first = 0; const int count : counts_) {
    firsts_.push_back(first);
    first += count;
  }
  if (!in_memory) {
    hints_ =
        std::clamp<size_t>(static_cast<size_t>(terms.ahead.value / (most * layer)), 1, kMostHints);
  }
}

LoadDone PageLoading::Run(Landing& landing, const Clock& clock) {
  const Seconds start = clock.Now();
  done_.id = load_.id;
  if (by_page_) {
    ReadPages(landing, clock);
  } else {
    OpenPages(landing, clock);
    if (done_.end == LoadEnd::kDone && usable_ > 0) ReadGroups(landing, clock);
  }
  const size_t good = std::min(whole_, usable_);
  done_.pages_ok = static_cast<int64_t>(good);
  for (size_t page = 0; page < good; ++page) ++tally_.pages[TierOf(page)];
  if (done_.end == LoadEnd::kDone && usable_ < load_.pages.size()) done_.end = LoadEnd::kFailed;
  if (done_.end != LoadEnd::kDone && load_.gate) load_.gate->Fail();
  readers_.clear();
  done_.took = clock.Now() - start;
  return std::move(done_);
}

void PageLoading::OpenPages(Landing& landing, const Clock& clock) {
  for (size_t page = 0; page < usable_ && !Stop(landing, clock); ++page) {
    const Seconds start = clock.Now();
    HintOpening(page);
    auto reader = OpenPage(page, landing, clock);
    tally_.reading[TierOf(page)] += clock.Now() - start;
    if (landing.given_up()) {  // Which is nothing that the page has done.
      done_.end = LoadEnd::kCancelled;
      break;
    }
    if (!reader) {
      CutAt(page, reader.error());
    } else {
      readers_.push_back(std::move(*reader));
    }
  }
  UnhintOpening(readers_.size());
}

void PageLoading::HintOpening(size_t page) {
  for (; opening_ < std::min(usable_, page + kOpenAhead); ++opening_) {
    PageStore* store = StoreOf(opening_);
    if (store != nullptr && !store->WillOpen(load_.pages[opening_].key, use())) return;
  }
}

// Of what was hinted, pages from `page` on are not opened.
void PageLoading::UnhintOpening(size_t page) {
  for (; page < opening_; ++page) {
    if (PageStore* store = StoreOf(page)) store->WontOpen(load_.pages[page].key);
  }
}

void PageLoading::ReadPages(Landing& landing, const Clock& clock) {
  size_t page = 0;
  for (; page < usable_ && !Stop(landing, clock); ++page) {
    HintOpening(page);
    const auto read = ReadPage(page, landing, clock);
    if (landing.given_up()) continue;  // Which is nothing that the page has done.
    if (!read) {
      CutAt(page, read.error());
      break;
    }
    whole_ = page + 1;
  }
  UnhintOpening(page);
  if (load_.gate && whole_ == load_.pages.size()) load_.gate->Open(terms_.shape.layers);
}

Result<void> PageLoading::ReadPage(size_t page, Landing& landing, const Clock& clock) {
  const Seconds start = clock.Now();
  const size_t tier = TierOf(page);
  const auto read = [&]() -> Result<void> {
    ASSIGN_OR_RETURN(auto reader, OpenPage(page, landing, clock));
    readers_.push_back(std::move(reader));
    return ReadLayers(page, 0, terms_.shape.layers, landing);
  }();
  readers_.clear();
  tally_.reading[tier] += clock.Now() - start;
  return read;
}

Result<std::unique_ptr<PageReader>> PageLoading::OpenPage(size_t page, const Landing& landing,
                                                          const Clock& clock) {
  const LoadedPage& wanted = load_.pages[page];
  PageStore* store = StoreOf(page);
  if (store == nullptr) {
    return Error{Code::kNotFound, Format("there is no tier {}", TierName(wanted.tier))};
  }
  ASSIGN_OR_RETURN(
      auto reader,
      store->OpenWithin(
          wanted.key, {.within = load_.deadline - clock.Now(), .use = use(), .landing = &landing}));
  PageHeader asked{.shape = terms_.shape,
                   .position = load_.position + static_cast<int64_t>(page) * terms_.shape.tokens,
                   .key = wanted.key,
                   .root = load_.root,
                   .model = terms_.model};
  RETURN_IF_ERROR(CheckIsAsked(reader->header(), asked));
  return reader;
}

void PageLoading::ReadGroups(Landing& landing, const Clock& clock) {
  buffer_.resize(static_cast<size_t>(std::ranges::max(counts_) * terms_.shape.layer_bytes));
  HintTo(hints_);
  for (size_t group = 0; group < counts_.size(); ++group) {
    for (size_t page = 0; page < usable_; ++page) {
      if (Stop(landing, clock)) return;
      HintTo(group * usable_ + page + hints_ + 1);
      ReadRun(page, group, landing, clock);
    }
    if (usable_ == 0 || landing.given_up()) return;
    if (load_.gate) load_.gate->Open(firsts_[group] + counts_[group]);
  }
}

// What can hang is waited for first, or read into a buffer between.
Result<void> PageLoading::ReadLayers(size_t page, int first, int count, Landing& landing) {
  const auto layer = static_cast<size_t>(terms_.shape.layer_bytes);
  const auto bytes = static_cast<size_t>(count) * layer;
  const auto to = load_.pages[page].to.subspan(static_cast<size_t>(first) * layer, bytes);
  PageReader& reader = *readers_[by_page_ ? 0 : page];
  const PageStore& store = *StoreOf(page);
  Result<void> read;
  if (store.in_memory() || store.staged()) {
    RETURN_IF_ERROR(reader.Await(first, count));
    if (!landing.Land([&] { read = reader.ReadLayers(first, count, to); })) return GivenUp();
  } else {
    buffer_.resize(std::max(buffer_.size(), bytes));
    const auto buffer = std::span(buffer_).first(bytes);
    read = reader.ReadLayers(first, count, buffer);
    const auto copy = [&] { std::memcpy(to.data(), buffer.data(), bytes); };
    if (read.ok() && !landing.Land(copy)) return GivenUp();
  }
  if (read.ok()) tally_.read[TierOf(page)] += Bytes(static_cast<int64_t>(bytes));
  return read;
}

void PageLoading::ReadRun(size_t page, size_t group, Landing& landing, const Clock& clock) {
  const Seconds start = clock.Now();
  const auto read = ReadLayers(page, firsts_[group], counts_[group], landing);
  tally_.reading[TierOf(page)] += clock.Now() - start;
  if (landing.given_up()) return;  // Which is nothing that the page has done.
  if (!read) return CutAt(page, read.error());
  if (group + 1 == counts_.size()) whole_ = page + 1;
}

void PageLoading::HintTo(size_t end) {
  if (hints_ == 0) return;
  // Beginning with the one that is read next.
  for (hinted_ = std::max(hinted_, end - std::min(end, hints_ + 1)); hinted_ < end; ++hinted_) {
    const size_t group = usable_ == 0 ? counts_.size() : hinted_ / usable_;
    if (group >= counts_.size()) return;
    if (!readers_[hinted_ % usable_]->WillRead(firsts_[group], counts_[group])) return;
  }
}

void PageLoading::CutAt(size_t page, const Error& error) {
  const LoadedPage& bad = load_.pages[page];
  done_.bad.push_back({bad.key, bad.tier, error.code, error.message});
  usable_ = page;
  if (load_.gate) load_.gate->Fail();
}

bool PageLoading::Stop(const Landing& landing, const Clock& clock) {
  if (landing.given_up()) {
    done_.end = LoadEnd::kCancelled;
  } else if (clock.Now() >= load_.deadline) {
    done_.end = LoadEnd::kLate;
  }
  return done_.end != LoadEnd::kDone;
}

}  // namespace divisi
