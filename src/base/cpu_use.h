// How much CPU time others take: what is measured beside them holds for now only.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/clock.h"

namespace zerohop {

// CPU time since the machine started; others: of everything but this process, and what the host of
// a virtual machine gave to somebody else.
struct CpuUse {
    std::int64_t busy_ns = 0;  // of all CPUs, `stolen` included
    std::int64_t own_ns = 0;   // of this process
    MonoNs at_ns = 0;
    std::int32_t cpus = 0;

    static CpuUse now();  // cpus is 0 where /proc/stat cannot be read; any thread

    // Of all CPUs' time since `before`, the part others took: 0 … 1; 0 where nothing is known.
    double others_since(const CpuUse& before) const;
};

// From /proc/stat's text: jiffies that all CPUs were busy or stolen (its first line), and how many
// CPUs it lists. Empty when it is not such a text.
struct CpuJiffies {
    std::int64_t busy = 0;
    std::int32_t cpus = 0;
};
std::optional<CpuJiffies> parse_proc_stat(std::string_view text);

}  // namespace zerohop
