// EnginePort: what the rest of the process sees of a model. Implemented by engine::LlamaEngine and
// engine::NullEngine; `api` and `admit` know only this.
//
// Threads: every method is callable from any thread and does not block, unless it says so.
// Lifetime: outlives every Stream that was submitted to it (app stops the front first).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

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
    std::int32_t max_sequences = 0;   // requests computed at once
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
    // Caches, since the start. Blocks of 16 tokens, of all prompts.
    std::uint64_t block_needs = 0, block_hits = 0, evicted_blocks = 0;
    std::uint64_t drafts_proposed = 0, drafts_accepted = 0;  // tokens
    std::uint64_t pool_tokens = 0;                           // held: running and cached
    std::uint64_t host_bytes = 0;                            // of saved prefixes in host memory
};

// One cached prompt beginning. The list is a snapshot, at most a second old.
struct CacheEntry {
    std::uint64_t id = 0;
    std::string workspace;  // Principal::cache_owner: a workspace, or a group of them
    std::uint32_t tokens = 0;
    std::uint64_t hits = 0;       // requests that began with a part of it
    MonoNs pinned_until = 0;      // 0: not pinned
    bool running = false;         // a request is using it
    bool in_host_memory = false;  // else in the model's KV pool
};
using CacheList = std::vector<CacheEntry>;

class EnginePort : public Notifier {
  public:
    virtual const ModelInfo& info() const = 0;

    // Renders, tokenizes and queues the request; everything that happens is told through `stream`:
    // Failed with kInvalidRequest (prompt beyond the context, both numbers in the text),
    // kOverloaded (a queue is full, with retry_after_ms), kUnavailable (draining), kTimeout (its
    // deadline, or nobody reads: sched/occupancy.h). A cancel at any moment frees what it holds
    // before the next step; what is then told, if anything, is one Failed.
    // The answer may come before submit returns.
    virtual void submit(RequestPtr request, StreamPtr stream) = 0;

    virtual EngineStats stats_approx() const = 0;

    // What is cached; null: this engine caches nothing.
    virtual std::shared_ptr<const CacheList> cached_approx() const { return nullptr; }
    // Forgets what a workspace or a group (Principal::cache_owner) has cached: one entry, or all of
    // it (id 0), pins included, and then what was learnt of its answers too. What running requests
    // use goes when they end. Done before the engine's next step.
    virtual void forget_cached(std::string_view workspace, std::uint64_t id) {
        (void)workspace;
        (void)id;
    }

    // No new work: submit fails with kUnavailable; running work goes on.
    virtual void drain() = 0;
    // Blocks until all threads of this engine have ended. What still runs gets Failed kUnavailable.
    virtual void stop() = 0;
};

}  // namespace zerohop
