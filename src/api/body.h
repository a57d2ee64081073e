// Body: collects one request body under a cap, undoing gzip, into the buffer the parser reads in
// place.
//
// Owning thread: the exchange's I/O thread. The buffer belongs to the Body; it carries kPadding
// readable bytes after its end, so that simdjson needs no copy.
// Fails with kTooLarge (the cap, on the wire or after decoding) and kInvalidRequest (encoding).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "api/gzip.h"
#include "base/error.h"

namespace zerohop::api {

class Body {
  public:
    static constexpr std::size_t kPadding = 64;  // SIMDJSON_PADDING, checked in messages_parse.cc

    // expected_bytes: content-length, or -1. It sizes the buffer once the first byte is there.
    Body(std::int64_t cap_bytes, std::int64_t expected_bytes)
        : cap_(static_cast<std::size_t>(cap_bytes)), expected_(expected_bytes) {}

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
    bool grow(std::size_t needed);

    std::size_t cap_;
    std::int64_t expected_;
    std::size_t wire_bytes_ = 0;
    std::unique_ptr<char, Free> data_;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;  // padding not counted
    std::unique_ptr<Gunzip> gunzip_;
};

Error body_too_large(std::int64_t cap_bytes);

}  // namespace zerohop::api
