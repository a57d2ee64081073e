// Limits of the protocol sessions: sizes, counts and times a peer may use.
//
// Plain values, copied at start and read by every I/O thread. docs/limits.md repeats each number.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zerohop::wire {

struct Limits {
    // Request head (h1: its bytes; h2: decoded names + values + 32 each). Beyond it: 431.
    std::size_t head_bytes = 32 * 1024;
    std::size_t header_count = 128;          // fields of one head; beyond it: 431
    std::size_t target_bytes = 8 * 1024;     // path and query; beyond it: 414
    std::int64_t head_ms = 15'000;           // first to last byte of a head; beyond it: 408
    std::int64_t body_idle_ms = 30'000;      // silence within a body: 408
    std::int64_t body_ms = 120'000;          // first to last byte of a body; beyond it: 408
    std::int64_t min_rate = 256;             // bytes per second of a body or of an answer (pace.h)
    std::int64_t idle_ms = 400'000;          // no request on a connection (> 5 min: JVM pools)
    std::size_t pipeline_bytes = 64 * 1024;  // h1: read ahead of the answer in progress
    std::size_t chunk_overhead = 16 * 1024;  // h1: one chunk's extension, or all trailers
    std::size_t keep_discard = 256 * 1024;   // h1: unread body worth reading to keep a connection
    // After an early answer the rest of a request is read and dropped, so that the client sees it.
    std::size_t linger_bytes = 64 * 1024 * 1024;
    std::int64_t linger_ms = 30'000;      // in total
    std::int64_t linger_idle_ms = 5'000;  // without a byte
    // A peer that takes nothing for this long while bytes wait for it, or less than min_rate
    // (pace.h), is given up: the stream where its window is shut (h2), else the connection.
    std::int64_t write_stall_ms = 60'000;

    std::uint32_t h2_streams = 256;                       // concurrent, per connection
    std::int32_t h2_stream_window = 1024 * 1024;          // bytes
    std::int32_t h2_connection_window = 8 * 1024 * 1024;  // bytes
    // Frames that move no request forward (SETTINGS, PING, PRIORITY, RST_STREAM, empty DATA,
    // WINDOW_UPDATE, unknown …) draw on a bucket; real work refills it. Empty: ENHANCE_YOUR_CALM.
    std::int64_t h2_control_burst = 4096;
    std::int64_t h2_control_per_s = 256;
    std::uint64_t h2_reset_burst = 1000;  // RST_STREAM by the peer
    std::uint64_t h2_reset_per_s = 33;
};

}  // namespace zerohop::wire
