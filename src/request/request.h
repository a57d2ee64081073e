// Request: what a client asks of a model, free of any dialect. Made by `api`, read by `engine`.
//
// Owning thread: built on an I/O thread (or for it, when the body is large), then the engine's.
// Frees itself. Nothing here fails.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/memory_budget.h"
#include "request/principal.h"
#include "request/priority.h"

namespace zerohop {

enum class Role : std::uint8_t { kSystem, kUser, kAssistant, kTool };

// As dialects and chat templates spell it; a literal, so data() ends with a zero.
constexpr std::string_view name_of(Role role) {
    constexpr std::string_view kNames[] = {"system", "user", "assistant", "tool"};
    return kNames[static_cast<std::size_t>(role)];
}

// What stands between two parts of a turn where a model reads them: they were blocks or messages of
// their own, and "12" before "34" is not "1234".
inline constexpr std::string_view kBetweenParts = "\n";

// One turn of the conversation, text only for now; adjacent turns of a role are already merged.
// Parts stay apart so that later work can place cache breakpoints between them.
struct Turn {
    Role role = Role::kUser;
    std::vector<std::string> parts;  // UTF-8, valid
};

// The turn as a model reads it.
inline std::string text_of(const Turn& turn) {
    std::string text;
    for (std::size_t i = 0; i < turn.parts.size(); ++i) {
        if (i > 0) text += kBetweenParts;
        text += turn.parts[i];
    }
    return text;
}

// Absent members fall back to config, then the GGUF's general.sampling.*, then temperature 1.
struct Sampling {
    std::optional<float> temperature;   // ≥ 0; 0 is greedy
    std::optional<float> top_p;         // (0, 1]
    std::optional<std::int32_t> top_k;  // ≥ 0; 0 is off
    std::optional<std::uint32_t> seed;
};

enum class Work : std::uint8_t {
    kGenerate,  // the default
    kCount,     // count_tokens: ends after Prepared, never reaches the engine's queue
};

// When a stop sequence ends the output.
enum class StopRule : std::uint8_t {
    kBeforeMatch,  // as soon as it is complete; the text is cut before it
    kWholeToken,   // looked for after each token but the first; the token that completes it is sent
};

// A hash of a prompt's structure; both 0: none.
struct StructureKey {
    std::uint64_t lo = 0, hi = 0;
    bool empty() const { return lo == 0 && hi == 0; }
    friend bool operator==(const StructureKey&, const StructureKey&) = default;
};

// A place of the prompt up to which its KV is to be kept for some time (cache_control).
struct CacheBreakpoint {
    std::uint32_t turn = 0, part = 0;  // behind this part of this turn
    MonoNs ttl_ns = 0;                 // from the end of the prompt's computation, and each use
};

// A lane's word to high priority: its first token comes within this, or it is refused.
struct FirstTokenPromise {
    std::string lane;
    std::uint32_t within_ms = 0;  // from its arrival in the queue; 0: nothing is promised
};

struct Request {
    std::string id;        // "req_…", for logs
    std::string trace_id;  // 32 hex digits
    Principal principal;
    std::string model;  // resolved public id
    Work work = Work::kGenerate;
    std::vector<Turn> turns;            // system turns may stand anywhere; last may be assistant
    bool continue_last = false;         // the last turn is an assistant prefill to be continued
    std::int32_t max_tokens = 0;        // output cap; 0: fill the cache, generate nothing
    std::int32_t max_total_tokens = 0;  // cap on input and output together; 0: none
    std::vector<std::string> stop_sequences;  // non-empty UTF-8
    StopRule stop_rule = StopRule::kBeforeMatch;
    Sampling sampling;
    // What may be shared, and how long. The engine derives whose it is from principal.
    std::vector<CacheBreakpoint> breakpoints;  // in the prompt's order, at most 4
    std::string cache_user;                    // not empty: cached for this user alone
    // Of whole prompt, last turn, system + tools: drafts and expected lengths are looked up in this
    // order. What a semantic anchor holds is part of each.
    std::array<StructureKey, 3> structure;
    MonoNs received_ns = 0;  // first byte of the head
    MonoNs deadline_ns = 0;  // 0: none
    // How it is served, decided by its head.
    std::uint8_t lane = 0;  // index among the lanes; 0 is the first one configured
    Priority priority = Priority::kNormal;
    FirstTokenPromise promise;             // only for an engine that looks after it itself
    std::int32_t expected_output = 0;      // tokens it is expected to sample; 0: nothing is known
    std::string trace_parent;              // the caller's "<trace id>-<span id>" (W3C), or ""
    std::shared_ptr<MemoryCharge> memory;  // pays for what text_bytes() counts; may be null
};

// Memory of what the client's text became: turns, stop sequences and what finds them.
std::size_t text_bytes(const Request& request);
// Its prompt is tokens now: gives the turns' memory back.
void drop_turns(Request& request);

// How much may be sampled after a prompt of so many tokens.
inline std::int32_t output_cap(const Request& request, std::int32_t input_tokens) {
    if (request.max_total_tokens == 0) return request.max_tokens;
    return std::clamp(request.max_total_tokens - input_tokens, 0, request.max_tokens);
}

// From EnginePort::submit on an engine's, which drops the turns once it has read them; whoever else
// holds it reads it again only after Failed.
using RequestPtr = std::shared_ptr<Request>;

}  // namespace zerohop
