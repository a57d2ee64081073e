// EnginePort: what the rest of the process sees of a model. Implemented by engine::LlamaEngine and
// engine::NullEngine; `api` and `admit` know only this.
//
// Threads: every method is callable from any thread and does not block, unless it says so.
// Lifetime: outlives every Stream that was submitted to it (app stops the front first).
#pragma once

#include <cstdint>
#include <string>

#include "base/notify.h"
#include "request/request.h"
#include "request/stream.h"

namespace zerohop {

struct ModelInfo {
    std::string id;  // public id, as clients name it
    std::string display_name;
    std::string architecture;         // "llama", "qwen3", "null", …
    WallNs created_ns = 0;            // file's modification time
    std::int32_t context_tokens = 0;  // prompt + output of one request
    std::int64_t parameters = 0;
    bool can_continue = true;      // assistant prefill works with its template
    bool can_share_prefix = true;  // partial seq_rm works (not recurrent)
};

// A racy snapshot for logs, /readyz and tests; each number is right, together they may not match.
struct EngineStats {
    std::uint32_t waiting = 0;  // queued: not yet in a batch
    std::uint32_t running = 0;  // sequences holding KV
    std::uint32_t paused = 0;   // by a full ring or by KV shortage
    std::uint64_t kv_tokens_used = 0;
    std::uint64_t kv_tokens_total = 0;
    std::uint64_t steps = 0;
    std::uint64_t prompt_tokens_computed = 0;
    std::uint64_t output_tokens = 0;
    std::uint64_t cancelled = 0;
    std::uint64_t last_cancel_ns = 0;  // flag seen → KV free, of the last cancelled sequence
};

class EnginePort : public Notifier {
  public:
    virtual const ModelInfo& info() const = 0;

    // Renders, tokenizes and queues the request; everything that happens is told through `stream`:
    // Failed with kInvalidRequest (prompt beyond the context, both numbers in the text),
    // kOverloaded (a queue is full, with retry_after_ms), kUnavailable (draining).
    // The answer may come before submit returns.
    virtual void submit(RequestPtr request, StreamPtr stream) = 0;

    virtual EngineStats stats_approx() const = 0;

    // No new work: submit fails with kUnavailable; running work goes on.
    virtual void drain() = 0;
    // Blocks until all threads of this engine have ended. What still runs gets Failed kUnavailable.
    virtual void stop() = 0;
};

}  // namespace zerohop
