// The API versions served (`anthropic-version`) and how they are read.
//
// Threads: any. Nothing fails but parse_version, which returns nothing for an unknown value.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace zerohop::api {

enum class Version : std::uint8_t {
    k2023_06_01,  // SDKs before 1.0
    k2026_10_21,  // SDKs from 1.0 on; stricter in three rules (wire-contract §3.1)
    k2024_07_15,  // max_tokens caps input and output together, stops end whole tokens, text is
                  // merged
};

inline constexpr std::string_view kKnownVersions = "2023-06-01, 2026-10-21, 2024-07-15";

inline std::optional<Version> parse_version(std::string_view value) {
    if (value == "2023-06-01") return Version::k2023_06_01;
    if (value == "2026-10-21") return Version::k2026_10_21;
    if (value == "2024-07-15") return Version::k2024_07_15;
    return std::nullopt;
}

inline std::string_view version_name(Version version) {
    switch (version) {
        case Version::k2023_06_01:
            return "2023-06-01";
        case Version::k2026_10_21:
            return "2026-10-21";
        case Version::k2024_07_15:
            return "2024-07-15";
    }
    return "";
}

// Whether temperature, top_p and top_k reach the model under 2026-10-21. The public API refuses
// them; people who host their own model need them, so accepting is the default (SPEC "Versions").
enum class SamplingParams : std::uint8_t { kAccept, kStrict };

}  // namespace zerohop::api
