#include "admit/rate_limit_headers.h"

#include <charconv>

#include "base/rfc3339.h"

namespace zerohop::admit {
namespace {

struct Names {
    const char *limit, *remaining, *reset;
};
constexpr Names kNames[] = {
    {"anthropic-ratelimit-requests-limit", "anthropic-ratelimit-requests-remaining",
     "anthropic-ratelimit-requests-reset"},
    {"anthropic-ratelimit-input-tokens-limit", "anthropic-ratelimit-input-tokens-remaining",
     "anthropic-ratelimit-input-tokens-reset"},
    {"anthropic-ratelimit-output-tokens-limit", "anthropic-ratelimit-output-tokens-remaining",
     "anthropic-ratelimit-output-tokens-reset"},
    {"anthropic-ratelimit-tokens-limit", "anthropic-ratelimit-tokens-remaining",
     "anthropic-ratelimit-tokens-reset"},
};

std::string number(std::int64_t value) {
    char buffer[20];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
    return {buffer, end};
}

void append(const Names& names, const QuotaState& state, WallNs wall,
            std::vector<wire::Header>& out) {
    if (state.limit == 0) return;
    const WallNs full = wall + state.full_in_ns;
    out.emplace_back(names.limit, number(state.limit));
    out.emplace_back(names.remaining, number(state.remaining));
    out.emplace_back(names.reset, format_rfc3339(full + kNsPerSec - 1));
}

}  // namespace

void append_rate_limit_headers(const QuotaStates& states, Quota request_class, WallNs wall,
                               std::vector<wire::Header>& out) {
    append(kNames[0], states[static_cast<std::size_t>(request_class)], wall, out);
    const QuotaState& input = states[static_cast<std::size_t>(Quota::kInputTokens)];
    const QuotaState& output = states[static_cast<std::size_t>(Quota::kOutputTokens)];
    append(kNames[1], input, wall, out);
    append(kNames[2], output, wall, out);
    const bool use_output =
        input.limit == 0 || (output.limit != 0 && output.remaining < input.remaining);
    append(kNames[3], use_output ? output : input, wall, out);
}

}  // namespace zerohop::admit
