#include "base/cpu_use.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

namespace zerohop {
namespace {

constexpr std::int64_t ns_of(const timeval& time) {
    return time.tv_sec * kNsPerSec + time.tv_usec * std::int64_t{1000};
}

}  // namespace

std::optional<CpuJiffies> parse_proc_stat(std::string_view text) {
    // "cpu  user nice system idle iowait irq softirq steal guest guest_nice", then a line for each
    // CPU. A guest's time is in user's already.
    if (!text.starts_with("cpu ")) return std::nullopt;
    CpuJiffies jiffies;
    const char* at = text.data() + 4;
    const char* const end = text.data() + std::min(text.find('\n'), text.size());
    for (int field = 0; field < 8; ++field) {
        while (at != end && *at == ' ') ++at;
        std::int64_t value = 0;
        const auto [next, error] = std::from_chars(at, end, value);
        if (error != std::errc()) return std::nullopt;
        at = next;
        if (field != 3 && field != 4) jiffies.busy += value;  // idle, iowait
    }
    for (std::size_t line = text.find("\ncpu"); line != std::string_view::npos;
         line = text.find("\ncpu", line + 1))
        ++jiffies.cpus;
    return jiffies;
}

CpuUse CpuUse::now() {
    CpuUse use{.at_ns = mono_now()};
    rusage own{};
    if (getrusage(RUSAGE_SELF, &own) == 0) use.own_ns = ns_of(own.ru_utime) + ns_of(own.ru_stime);
    std::ifstream in("/proc/stat");  // says that its size is 0: not for read_file()
    const auto jiffies = parse_proc_stat(std::string(std::istreambuf_iterator(in), {}));
    if (!jiffies) return use;
    use.busy_ns = jiffies->busy * (kNsPerSec / std::max(1L, sysconf(_SC_CLK_TCK)));
    use.cpus = jiffies->cpus;
    return use;
}

double CpuUse::others_since(const CpuUse& before) const {
    const auto all = static_cast<double>(at_ns - before.at_ns) * cpus;
    if (cpus == 0 || before.cpus == 0 || all <= 0) return 0;
    const std::int64_t others = (busy_ns - before.busy_ns) - (own_ns - before.own_ns);
    return std::clamp(static_cast<double>(others) / all, 0.0, 1.0);
}

}  // namespace zerohop
