#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <string>

namespace zerohop {
namespace {

bool g_json = false;

spdlog::level::level_enum to_spdlog(LogLevel level) {
    switch (level) {
        case LogLevel::kDebug:
            return spdlog::level::debug;
        case LogLevel::kInfo:
            return spdlog::level::info;
        case LogLevel::kWarn:
            return spdlog::level::warn;
        case LogLevel::kError:
            return spdlog::level::err;
    }
    return spdlog::level::info;
}

std::string json_escape(std::string_view text) {
    std::string out;
    out.reserve(text.size() + 8);
    for (const char c : text) {
        const auto u = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (u < 0x20) {
            out += fmt::format("\\u{:04x}", u);
        } else {
            out += c;
        }
    }
    return out;
}

}  // namespace

void init_log(std::string_view format, std::string_view level) {
    g_json = format == "json" || (format != "human" && isatty(STDERR_FILENO) == 0);
    std::shared_ptr<spdlog::logger> logger;
    if (g_json) {
        logger = spdlog::stderr_logger_mt("zerohop");
        logger->set_pattern(R"({"time":"%Y-%m-%dT%H:%M:%S.%f%z","level":"%l",%v})");
    } else {
        logger = spdlog::stderr_color_mt("zerohop");
        logger->set_pattern("%H:%M:%S.%e %^%-5l%$ %v");
    }
    logger->set_level(spdlog::level::from_str(std::string(level)));
    logger->flush_on(spdlog::level::info);
    spdlog::set_default_logger(std::move(logger));
}

bool log_enabled(LogLevel level) { return spdlog::should_log(to_spdlog(level)); }

void log_line(LogLevel level, std::string_view module, std::string_view message) {
    if (g_json) {
        spdlog::log(to_spdlog(level), R"("module":"{}","message":"{}")", module,
                    json_escape(message));
    } else {
        spdlog::log(to_spdlog(level), "{:<7} {}", module, message);
    }
}

}  // namespace zerohop
