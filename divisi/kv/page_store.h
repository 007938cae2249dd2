// A tier below the device, as the threads that move pages see it: objects under keys, written once,
// read while they are referenced, removed. Which pages a tier holds is decided elsewhere.
//
// A store checks what it reads: whatever comes back as good is what was put under that key. An
// object that fails is put aside by the store itself and is not found again.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "divisi/core/result.h"
#include "divisi/core/units.h"
#include "divisi/kv/page_object.h"

namespace divisi {

// One object that stays readable, and takes its place, while this lives. Not longer than its store.
// For one thread at a time.
class PageReader {
 public:
  virtual ~PageReader() = default;
  virtual const PageHeader& header() const = 0;
  // Layers [first, first + count) into `to`, each checked; on failure `to` holds anything.
  // Errors: kDataLoss for bytes that are not what was put, kNotFound where they went away,
  // kUnavailable for what the system reports; each with the key and the reason.
  // Requires: layers of the page; to.size() == count * layer_bytes.
  virtual Result<void> ReadLayers(int first, int count, std::span<std::byte> to) = 0;
  // Waits until reading these is no more than copying, where the store is staged; reading them has
  // to come next. Errors: those of ReadLayers.
  virtual Result<void> Await(int first, int count) {
    (void)first;
    (void)count;
    return {};
  }
  // A hint: these will be read next. False: there is no room for it now.
  virtual bool WillRead(int first, int count) {
    (void)first;
    (void)count;
    return true;
  }
};

// How a page will be read once it is open: all of it next, or a few layers at a time, many pages'
// in turn. Where getting it takes long, that says what to get first.
enum class PageUse { kWhole, kLayers };

class Landing;
// How a page is opened by who does not wait as long as that may take.
struct PageOpening {
  Seconds within;  // Nothing is waited for longer, in what is read then, too.
  PageUse use = PageUse::kWhole;
  // Once given up nothing is waited for any more, as kCancelled. Outlives the reader; null: never.
  const Landing* landing = nullptr;
};

// Whether a put would be begun now. kLater: as many are under way as may be. kPaused: where the
// page goes was late, away or full just now.
enum class PutTurn { kNow, kLater, kPaused };

// Blocking. Safe from any thread.
class PageStore {
 public:
  virtual ~PageStore() = default;

  // Errors: kNotFound; kDataLoss and kUnavailable as for ReadLayers; kResourceExhausted where too
  // many are open.
  virtual Result<std::unique_ptr<PageReader>> Open(const BlockKey& key) = 0;
  // Errors: also kCancelled.
  virtual Result<std::unique_ptr<PageReader>> OpenWithin(const BlockKey& key,
                                                         const PageOpening& opening) {
    (void)opening;
    return Open(key);
  }
  // Stores the page whole, then makes it visible, or leaves no trace. Of a key that is there
  // already nothing is written: an object never changes.
  // Errors: kResourceExhausted where room is lacking, kInvalidArgument for a page of another shape
  // or model than the store's, kUnavailable for what the system reports, with the remedy.
  // Requires: payload.size() == header.shape.PayloadBytes().
  virtual Result<void> Put(const PageHeader& header, std::span<const std::byte> payload) = 0;
  // Put for who goes on meanwhile, up to most_puts at a time. `done` is called once, in bounded
  // time, by whatever thread, perhaps before this returns. The payload was read when this returns.
  using PutDone = std::function<void(Result<void>)>;
  virtual void BeginPut(const PageHeader& header, std::span<const std::byte> payload,
                        PutDone done) {
    done(Put(header, payload));
  }
  virtual size_t most_puts() const { return 1; }
  // Of BeginPut; one whose turn is not now fails at once.
  virtual PutTurn TurnOf(const BlockKey& key) const {
    (void)key;
    return PutTurn::kNow;
  }
  // Not found from now on; its room comes back when the last reader ends. Nothing for a key that is
  // not there.
  virtual void Remove(const BlockKey& key) = 0;

  // A hint: Open of this key, and a read of its first layers, come next. False: there is no room
  // for it now.
  virtual bool WillOpen(const BlockKey& key, PageUse use) {
    (void)key;
    (void)use;
    return true;
  }
  // It does not come after all.
  virtual void WontOpen(const BlockKey& key) { (void)key; }
  // Whether reading is no more than copying: it can't hang, and needs no buffer between.
  virtual bool in_memory() const { return false; }
  // Whether what can hang is PageReader::Await.
  virtual bool staged() const { return false; }
  // Whether Open always brings all of an object into memory, and few can be open at a time.
  virtual bool whole() const { return false; }
};

}  // namespace divisi
