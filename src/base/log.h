// Logging: spdlog behind four macros-free functions. Human text on a terminal, JSON lines
// otherwise.
//
// Threads: any. Never logs prompt or output text; callers pass ids and numbers. init_log() is
// called once by `cli` before threads start; without it, warnings go to stderr.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace zerohop {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

// format: "auto" (terminal → human, else JSON lines), "human" or "json"; level: "debug" … "error".
void init_log(std::string_view format, std::string_view level);
bool log_enabled(LogLevel level);
// `module` is a literal such as "net".
void log_line(LogLevel level, std::string_view module, std::string_view message);

template <class... Args>
void log_info(std::string_view module, fmt::format_string<Args...> f, Args&&... args) {
    if (log_enabled(LogLevel::kInfo))
        log_line(LogLevel::kInfo, module, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void log_warn(std::string_view module, fmt::format_string<Args...> f, Args&&... args) {
    if (log_enabled(LogLevel::kWarn))
        log_line(LogLevel::kWarn, module, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void log_error(std::string_view module, fmt::format_string<Args...> f, Args&&... args) {
    if (log_enabled(LogLevel::kError))
        log_line(LogLevel::kError, module, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void log_debug(std::string_view module, fmt::format_string<Args...> f, Args&&... args) {
    if (log_enabled(LogLevel::kDebug))
        log_line(LogLevel::kDebug, module, fmt::format(f, std::forward<Args>(args)...));
}

}  // namespace zerohop
