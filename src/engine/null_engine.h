// NullEngine: a model made of a script, behind EnginePort. For tests of the front, of faults and of
// load: tokens, delays and failures come as asked, nothing is computed.
//
// Configured by a string, "null" or "null:key=value,key=value":
//     tokens=64        output tokens of a request (max_tokens may end it earlier)
//     delay_ms=0       time between two tokens of one sequence; fractions allowed
//     tokens_per_s=N   the same, as a rate
//     prefill_ms=0     time from a slot to the first token
//     text=…           the answer; cut into words, or chunk=N bytes each; repeated up to `tokens`
//     chunk=0          bytes per token of the answer; 0: a token is a word with its leading space
//     context=8192     tokens of prompt + output
//     slots=8          sequences at once
//     queue=64         requests waiting beyond that, of one workspace its share (fair_queue.h);
//                      then kOverloaded with retry_after_ms
//     retry_after_ms=1000
//     id=null          public id
// A request overrides the first six for itself when its last user turn starts with "null:": then
// follow key=value pairs separated by spaces. More keys there:
//     text=…           the rest of the turn, spaces included, so it comes last
//     echo=1           the answer is the conversation as received: "[role]text" per turn
//     fail=CODE        ends with this Code: overloaded, internal, unavailable, timeout, invalid,
//                      permission, not_found, rate_limited
//     fail_after=N     … after N tokens (default: instead of Prepared)
//     end=REASON       how it ends after `tokens`: end_turn (default), max_tokens, context
// Unknown keys and bad numbers fail: the config at make_null, the request with kInvalidRequest.
//
// Input tokens: white-space separated words of every turn + 4 per turn + 3. The same for kCount.
// Prepared comes before a request is queued. Waiting requests start in the order of priority,
// fairness and lane that wait_queue.h gives them. One thread per engine owns all sequences; submit,
// notify, drain, stop: any thread.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "request/engine_port.h"
#include "sched/occupancy.h"
#include "sched/queue_gauge.h"

namespace zerohop::engine {

// `lane_reserved`: slots by lane index, as wait_queue.h says; `gauge` is kept up to date. Fails
// with kInvalidRequest on an unknown key or a bad value.
Result<std::unique_ptr<EnginePort>> make_null(
    std::string_view config, std::vector<std::uint32_t> lane_reserved = {},
    const std::shared_ptr<sched::QueueGauge>& gauge = nullptr,
    const sched::OccupancyLimits& occupancy = {});

}  // namespace zerohop::engine
