// Which of a request's headers says who asks.
//
// Both `x-api-key` and `authorization: Bearer` are accepted (SDKs differ by version, wire-contract
// §2.1), and both at once: tools send a key of another service in the one and ours in the other.
// The one that is valid here counts. If both are, it is `x-api-key`: proxies add `authorization`
// headers of their own, but nobody adds the other by accident. Threads: any; pure functions over
// the caller's bytes.
#pragma once

#include <optional>
#include <string_view>

#include "base/error.h"

namespace zerohop::auth {

struct Credential {
    std::string_view text;  // the key or token, white space trimmed; never empty
    bool is_token = false;  // begins as a short-lived token does
};

// What was presented, in the order in which it counts.
struct Credentials {
    Credential first;
    std::optional<Credential> second;
};
// Values as received, "" when absent. Fails with kAuthentication and the wording for a missing or
// unusable credential, when neither is of any use.
Result<Credentials> read_credentials(std::string_view x_api_key, std::string_view authorization);

// 401 texts, one place.
Error missing_credential();
Error invalid_key();
Error invalid_token();
Error expired_token();

inline constexpr std::string_view kTokenPrefix = "v4.local.";
inline constexpr std::size_t kMaxCredential = 2048;  // bytes; longer is refused unread

}  // namespace zerohop::auth
