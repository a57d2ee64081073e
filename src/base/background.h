// give_way_to_others(): the calling thread from now on gets a processor when others leave one, and
// a tenth of a crowded one. For work in large pieces that nobody's next token waits for.
//
// Not to be undone (that takes a privilege). Where it is refused nothing changes.
#pragma once

#include <sys/resource.h>

namespace zerohop {

inline void give_way_to_others() {
    constexpr int kNice = 10;
    // Linux: `who` 0 of PRIO_PROCESS is the calling thread.
    (void)setpriority(PRIO_PROCESS, 0, kNice);
}

}  // namespace zerohop
