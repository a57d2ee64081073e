// Identifiers that leave the process: unguessable, unique, made without a lock.
//
// Threads: any (a small pool of random bytes per thread). Aborts only if the kernel has no
// randomness to give.
#pragma once

#include <string>
#include <string_view>

namespace zerohop::api {

// `prefix` and 24 base-62 characters (142 bits): "req_…", "msg_…".
std::string new_id(std::string_view prefix);

// 32 lower-case hex digits (W3C trace-id shape), never all zero.
std::string new_trace_id();

// 16 of them (W3C parent-id shape), likewise.
std::string new_span_id();

}  // namespace zerohop::api
