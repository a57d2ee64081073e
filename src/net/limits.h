// Limits of the server's sockets, beside wire::Limits for the protocols. docs/limits.md repeats
// them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/limits.h"

namespace zerohop::net {

struct Limits {
    wire::Limits wire;
    std::size_t connections = 10'000;                 // in total; further ones are closed at accept
    std::size_t connections_per_address = 4'096;      // IPv6: per /64
    std::int64_t handshake_ms = 10'000;               // TLS
    std::size_t connection_bytes = 64 * 1024 * 1024;  // waiting output and unparsed input of one
    std::size_t total_bytes = 1024 * 1024 * 1024;     // of all; beyond it the greatest are closed
    // Unsent bytes the kernel may hold per socket (TCP_NOTSENT_LOWAT); the rest waits, counted,
    // here.
    int unsent_bytes = 64 * 1024;
    std::int64_t tick_ms = 250;  // resolution of all time-outs
};

}  // namespace zerohop::net
