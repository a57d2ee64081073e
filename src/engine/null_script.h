// NullScript: what a null engine does for one request; parsed from its config and from directives.
// Plain values and pure functions; see null_engine.h for the grammar.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "request/event.h"
#include "request/request.h"

namespace zerohop::engine {

struct NullScript {
    std::int32_t tokens = 64;
    std::int64_t delay_ns = 0;
    std::int64_t prefill_ns = 0;
    std::string text;
    std::int32_t chunk = 0;  // bytes per token; 0: words
    bool echo = false;
    std::optional<Code> fail;
    std::int32_t fail_after = -1;  // tokens; -1: instead of Prepared
    StopReason end = StopReason::kEndTurn;
    std::int64_t retry_after_ms = 1000;
};

struct NullConfig {
    NullScript script;
    std::string id = "null";
    std::int32_t context = 8192;
    std::uint32_t slots = 8;
    std::uint32_t queue = 64;
};

Result<NullConfig> parse_null_config(std::string_view config);

// The script of one request: the config's, changed by the directives of its last user turn.
Result<NullScript> script_for(const NullScript& defaults, const Request& request);

// The answer's tokens in order; token i of the output is pieces[i % size]. Never empty.
std::vector<std::string> pieces_of(const NullScript& script);

std::int32_t count_input(const Request& request);

}  // namespace zerohop::engine
