// Trace ids: ours, made per request, and the caller's W3C traceparent.
//
// Threads: parse_traceparent any; a TraceIds belongs to one thread. Nothing fails.
// Source: W3C Trace Context, level 1, §3.2.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace zerohop::admit {

struct TraceParent {
    std::array<char, 32> trace_id{};  // lower-case hex, not all zero
    std::array<char, 16> span_id{};   // likewise
    bool sampled = false;
};
// nullopt for anything malformed: the header is then ignored, as the standard demands.
std::optional<TraceParent> parse_traceparent(std::string_view text);

// What we send on: `00-<our trace id>-<our span id>-<flags>`.
std::string make_traceparent(std::string_view trace_id, std::string_view span_id, bool sampled);

// Unique 128- and 64-bit ids as lower-case hex: a generator seeded with 256 random bits per thread
// (xoshiro256**). Ids are unique, not secret. A system call for each would cost more than the rest
// of a head's decision.
class TraceIds {
  public:
    TraceIds();
    void next_trace_id(char (&out)[32]);
    void next_span_id(char (&out)[16]);

  private:
    std::uint64_t next();
    std::array<std::uint64_t, 4> state_;
};

}  // namespace zerohop::admit
