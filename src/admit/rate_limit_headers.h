// The anthropic-ratelimit-* headers (wire-contract §4.5): per quota the limit, what remains of it
// and when it is whole again (RFC 3339, rounded up). Quotas that nobody set have no headers.
// `requests` is the class that the request counts in.
// `tokens` is the tighter one of input and output. Threads: any; pure function.
#pragma once

#include <vector>

#include "admit/quota.h"
#include "base/clock.h"
#include "wire/http.h"

namespace zerohop::admit {

void append_rate_limit_headers(const QuotaStates& states, Quota request_class, WallNs wall,
                               std::vector<wire::Header>& out);

}  // namespace zerohop::admit
