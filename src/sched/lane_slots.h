// lane_slots: how many slots of a model its lanes have of those they ask for.
//
// Pure. What the engine's queue keeps and what operators are shown is computed here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace zerohop::sched {

// By lane, in the order of the lanes. All together get at most half of the slots, the first ones
// first: what is kept for some must not lock out the rest.
inline std::vector<std::uint32_t> granted_slots(std::span<const std::uint32_t> wanted,
                                                std::uint32_t slots) {
    std::vector<std::uint32_t> granted;
    std::uint32_t left = slots / 2;
    for (const std::uint32_t wish : wanted) {
        granted.push_back(std::min(wish, left));
        left -= granted.back();
    }
    return granted;
}

}  // namespace zerohop::sched
