// gzip in both directions: answers that the client wants compressed, bodies that came compressed.
//
// Threads: any; an inflater belongs to one body. Memory: ~45 KiB per inflater.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace zerohop::api {

// accept-encoding allows gzip with a weight above zero (RFC 9110 §12.5.3).
bool accepts_gzip(std::string_view accept_encoding);

// Nothing when zlib refuses (out of memory); the caller then sends the body as it is.
std::optional<std::string> gzip_compress(std::string_view body);

// Streaming gunzip of one request body: possibly several members, no trailing bytes.
class Gunzip {
  public:
    enum class State : std::uint8_t { kMore, kFull, kInvalid };

    Gunzip();
    ~Gunzip();
    Gunzip(const Gunzip&) = delete;
    Gunzip& operator=(const Gunzip&) = delete;

    // Feeds `in`; calls sink(bytes) for each piece of output; sink returns false to stop (kFull).
    template <class Sink>
    State feed(std::string_view in, Sink&& sink) {
        set_input(in);
        for (;;) {
            const std::optional<std::string_view> piece = step();
            if (!piece) return State::kInvalid;
            if (piece->empty()) return State::kMore;
            if (!sink(*piece)) return State::kFull;
        }
    }

    // True at the end of a complete member: a body that ends elsewhere is truncated.
    bool complete() const;

  private:
    struct Impl;
    void set_input(std::string_view in);
    // The next piece of output, empty when the input is used up, nothing when it is malformed.
    std::optional<std::string_view> step();

    std::unique_ptr<Impl> impl_;
};

}  // namespace zerohop::api
