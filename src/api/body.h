// Body: collects one request body under a cap, undoing gzip, into the buffer the parser reads in
// place.
//
// Threads: one at a time: the exchange's I/O thread, then whoever reads it. The buffer belongs to
// the Body; it carries kPadding readable bytes after its end, so that simdjson needs no copy.
// Fails with kTooLarge (the cap, on the wire or after decoding), kInvalidRequest (encoding) and
// kOverloaded (all bodies together hold as much as they may).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "api/gzip.h"
#include "base/error.h"
#include "base/memory_budget.h"

namespace zerohop::api {

class Body {
  public:
    static constexpr std::size_t kPadding = 64;  // SIMDJSON_PADDING, checked in messages_parse.cc

    // expected_bytes: content-length, or -1. It sizes the buffer once the first byte is there, but
    // a large one is grown with what came: a length that is only declared must cost nothing.
    // budget: null for none; slot: the workspace's.
    Body(std::int64_t cap_bytes, std::int64_t expected_bytes, MemoryBudget* budget = nullptr,
         std::size_t slot = 0)
        : cap_(static_cast<std::size_t>(cap_bytes)),
          expected_(expected_bytes),
          charge_(budget, slot) {}
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
    // For who goes on with what was in it: its memory is paid for until that gives the charge back.
    MemoryCharge take_charge() { return std::move(charge_); }

  private:
    struct Free {
        void operator()(char* p) const { std::free(p); }
    };
    Status store(std::string_view bytes);
    Status grow(std::size_t needed);

    std::size_t cap_;
    std::int64_t expected_;
    MemoryCharge charge_;
    std::size_t wire_bytes_ = 0;
    std::unique_ptr<char, Free> data_;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;  // padding not counted
    std::unique_ptr<Gunzip> gunzip_;
};

Error body_too_large(std::int64_t cap_bytes);
Error bodies_full();  // the budget is spent

}  // namespace zerohop::api
