// Priority: how urgent a request is. Set from the rate hint, capped by the key; ordered, so that
// std::min and < mean "less urgent".
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace zerohop {

enum class Priority : std::uint8_t { kLow = 0, kNormal = 1, kHigh = 2 };

constexpr std::string_view to_string(Priority p) {
    switch (p) {
        case Priority::kLow:
            return "low";
        case Priority::kNormal:
            return "normal";
        case Priority::kHigh:
            return "high";
    }
    return "normal";
}

// Lower-case names only.
constexpr std::optional<Priority> parse_priority(std::string_view name) {
    for (const Priority p : {Priority::kLow, Priority::kNormal, Priority::kHigh})
        if (name == to_string(p)) return p;
    return {};
}

}  // namespace zerohop
