// What a lane's promise to high priority means for one request: it is refused rather than late.
//
// check_first_token(): any thread. `start_ms`: until its slot and the prompts before it are done;
// `own_ms`: for what is left to compute of its own prompt. kRateLimited when both are more than was
// promised; x-should-retry says when trying again cannot help.
#pragma once

#include "base/error.h"
#include "request/request.h"

namespace zerohop::sched {

Status check_first_token(const FirstTokenPromise& promise, std::uint32_t start_ms, double own_ms);

}  // namespace zerohop::sched
