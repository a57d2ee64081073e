// Body: collects one request body under a cap, undoing gzip, into the buffer the parser reads in
// place.
//
// Owning thread: the exchange's I/O thread. The buffer belongs to the Body; it carries kPadding
// readable bytes after its end, so that simdjson needs no copy.
// Fails with kTooLarge (the cap, on the wire or after decoding), kInvalidRequest (encoding) and
// kOverloaded (all bodies together hold as much as they may).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string_view>

#include "api/gzip.h"
#include "base/error.h"

namespace zerohop::api {

// What the bodies being collected may hold together, and each workspace of that: one client that
// uploads slowly and much must not shut out the others. Any thread; outlives the bodies.
class BodyBudget {
  public:
    // share_bytes: of one workspace (of a few that fall into one slot, when there are many).
    BodyBudget(std::int64_t cap_bytes, std::int64_t share_bytes)
        : cap_(cap_bytes), share_(share_bytes) {}

    static std::size_t slot_of(std::string_view workspace) {
        return std::hash<std::string_view>{}(workspace) % kSlots;
    }
    // False, and nothing changed, when it would exceed the cap or the share.
    bool take(std::size_t slot, std::size_t bytes);
    void give_back(std::size_t slot, std::size_t bytes);
    std::int64_t used_bytes() const { return used_.load(std::memory_order_relaxed); }
    // Whether a body of this size could be taken now; an answer for refusing early, no promise.
    bool has_room_for(std::size_t slot, std::int64_t bytes) const {
        return bytes <= cap_ - used_bytes() &&
               bytes <= share_ - slots_[slot].load(std::memory_order_relaxed);
    }

  private:
    static constexpr std::size_t kSlots = 256;
    const std::int64_t cap_;
    const std::int64_t share_;
    std::atomic<std::int64_t> used_{0};
    std::array<std::atomic<std::int64_t>, kSlots> slots_{};
};

class Body {
  public:
    static constexpr std::size_t kPadding = 64;  // SIMDJSON_PADDING, checked in messages_parse.cc

    // expected_bytes: content-length, or -1. It sizes the buffer once the first byte is there, but
    // a large one is grown with what came: a length that is only declared must cost nothing.
    // budget: null for none; slot: the workspace's.
    Body(std::int64_t cap_bytes, std::int64_t expected_bytes, BodyBudget* budget = nullptr,
         std::size_t slot = 0)
        : cap_(static_cast<std::size_t>(cap_bytes)),
          expected_(expected_bytes),
          budget_(budget),
          slot_(slot) {}
    ~Body() { clear(); }
    Body(const Body&) = delete;
    Body& operator=(const Body&) = delete;

    // content-encoding of the head; call before the first append.
    Status set_encoding(std::string_view content_encoding);

    Status append(std::string_view bytes);
    Status finish();  // the body is complete

    // Valid until the next append; bytes().data()[size … size+kPadding) may be read.
    std::string_view bytes();

    // Gives the memory back.
    void clear();

  private:
    struct Free {
        void operator()(char* p) const { std::free(p); }
    };
    Status store(std::string_view bytes);
    Status grow(std::size_t needed);

    std::size_t cap_;
    std::int64_t expected_;
    BodyBudget* budget_;
    std::size_t slot_;
    std::size_t wire_bytes_ = 0;
    std::unique_ptr<char, Free> data_;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;  // padding not counted
    std::unique_ptr<Gunzip> gunzip_;
};

Error body_too_large(std::int64_t cap_bytes);
Error bodies_full();  // the budget is spent

}  // namespace zerohop::api
