// KeyRecord: what is known of one API key. A value; immutable once it is in a KeySnapshot.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "auth/crypto.h"
#include "base/clock.h"
#include "request/priority.h"

namespace zerohop::auth {

// Per minute; 0 is "no limit of its own". Of a burst: at once, after a pause; 0 is "as the limit",
// one minute's worth.
struct Limits {
    std::int64_t requests = 0;
    std::int64_t input_tokens = 0;
    std::int64_t output_tokens = 0;
    bool operator==(const Limits&) const = default;
};
inline constexpr std::int64_t kMaxLimit = 1'000'000'000;  // keeps quota arithmetic in 128 bits

// Whether there is a burst of something that has no limit, which would mean nothing.
constexpr bool has_stray_burst(const Limits& limits, const Limits& burst) {
    return (burst.requests != 0 && limits.requests == 0) ||
           (burst.input_tokens != 0 && limits.input_tokens == 0) ||
           (burst.output_tokens != 0 && limits.output_tokens == 0);
}

enum class HashKind : std::uint8_t { kBlake2b, kSha256 };

// The hash of one secret. A key has one, or two while an old secret overlaps with its successor.
struct KeySecret {
    HashKind kind = HashKind::kBlake2b;
    Digest digest{};
    WallNs expires_ns = 0;  // 0: never
};

struct KeyRecord {
    std::string id;    // "key_" and ten characters, or the name given in the configuration
    std::string name;  // a note for people
    std::string workspace = "default";
    WallNs created_ns = 0;
    WallNs revoked_ns = 0;         // 0: in force
    std::uint32_t generation = 1;  // tokens carry it; raising it ends those already issued
    std::vector<KeySecret> secrets;
    Limits limits;
    Limits burst;
    Priority priority_max = Priority::kNormal;
    std::vector<std::string> models = {"*"};                // public ids or aliases; "*": all
    std::vector<std::string> lanes = {"default", "batch"};  // "*": all
    bool admin = false;
};

// A secret for tokens (PASETO v4.local), named by its own short id in the token's footer.
struct TokenSecret {
    std::string id;
    SecretBytes bytes{};
    WallNs created_ns = 0;
    WallNs retires_ns = 0;  // 0: the current one, which signs; else verifies until then
};

// Workspaces, key ids and lanes are names in files, headers and metrics: 1–64 of [A-Za-z0-9._-].
bool valid_name(std::string_view name);

}  // namespace zerohop::auth
