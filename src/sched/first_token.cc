#include "sched/first_token.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace zerohop::sched {

Status check_first_token(const FirstTokenPromise& promise, std::uint32_t start_ms, double own_ms) {
    const double expected = start_ms + own_ms;
    if (promise.within_ms == 0 || expected <= promise.within_ms) return {};
    const bool never = own_ms > promise.within_ms;
    Error error{.code = Code::kRateLimited, .detail = {}, .origin = "admit"};
    error.detail = fmt::format(
        "lane \"{}\" promises high priority a first token within {} ms, and this request's would "
        "come after {:.0f} ms ({} ms until it starts, {:.0f} ms for its prompt); {}",
        promise.lane, promise.within_ms, std::ceil(expected), start_ms, std::ceil(own_ms),
        never ? "send it without priority=high" : "try again, or send it without priority=high");
    if (never)
        error.headers.emplace_back("x-should-retry", "false");
    else
        error.retry_after_ms = std::max<std::int64_t>(start_ms, 1);
    return std::unexpected(std::move(error));
}

}  // namespace zerohop::sched
