// From a complete body to a Request that an engine may take: its JSON, the lines it drops, what
// makes a warm-up of it, its structure, and who pays for its memory.
//
// Threads: any, one per body; the exchange's I/O thread for small bodies, a worker for large ones
// (worker_pool.h). Linear in the body; looks at `stop` between passes.
// Fails with kInvalidRequest, kNotFound (the model), kOverloaded (no memory left for it, or for
// reading it), kCancelled.
#pragma once

#include <cstdint>
#include <string>

#include "api/body.h"
#include "api/messages_parse.h"
#include "api/options.h"
#include "api/skeleton_step.h"
#include "base/error.h"
#include "base/stop_flag.h"

namespace zerohop::api {

// Bodies beyond this are read by a worker: some 100 µs of an I/O thread.
inline constexpr std::size_t kLargeBody = 64 * 1024;

struct ReadTerms {
    ParseOptions parse;
    const ServiceOptions* options = nullptr;
    SkeletonStep* skeleton = nullptr;
    std::string request_id;
    bool strict_skeleton = false;
    StopFlag stop;
};

struct ReadMessages {
    ParsedMessages parsed;
    SkeletonSummary skeleton;
    std::uint32_t dropped_lines = 0;
};

// The body gives its memory back on the way.
Result<ReadMessages> read_messages(Body& body, const ReadTerms& terms);

}  // namespace zerohop::api
