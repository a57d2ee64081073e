// POST /v1/auth/token: a short-lived token for whoever holds a key. Format: docs/formats/token.md.
//
// Threads: any I/O thread; allocates, does not block.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "admit/head_admission.h"
#include "auth/token.h"
#include "base/error.h"

namespace zerohop::admit {

// What may be asked for; each only narrows.
struct TokenWish {
    std::optional<std::vector<std::string>> models;  // model_scope
    std::optional<std::string> region;               // region_hint
    std::optional<auth::Limits> quota;               // rate_limit_quota
};
// An empty body wishes nothing. Fails with kInvalidRequest naming the field.
Result<TokenWish> parse_token_wish(std::string_view body);

struct IssuedToken {
    std::string token;
    auth::TokenClaims claims;
};
// Fails with kPermission (asked with a token; a model or region beyond the key's), kNotFound (a
// model that is not served), kInvalidRequest (no keys are in use; too long), kUnavailable (no
// secret).
Result<IssuedToken> issue_token(const HeadAdmission& who, const TokenWish& wish, WallNs now);

// The answer's JSON: access_token, token_type, expires_in, expires_at, claims.
std::string token_json(const IssuedToken& issued);

// All three in one: what the route calls with the request's body. 200 on success.
Result<std::string> answer_token_request(const HeadAdmission& who, std::string_view body,
                                         WallNs now);

}  // namespace zerohop::admit
