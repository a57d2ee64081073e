#include "auth/credential.h"

#include "base/ascii.h"

namespace zerohop::auth {
namespace {

bool has_bearer_scheme(std::string_view value) {
    constexpr std::string_view kScheme = "bearer";
    if (value.size() <= kScheme.size() || (value[6] != ' ' && value[6] != '\t')) return false;
    for (std::size_t i = 0; i < kScheme.size(); ++i)
        if ((value[i] | 0x20) != kScheme[i]) return false;
    return true;
}

Error unauthenticated(std::string detail) {
    return Error{.code = Code::kAuthentication, .detail = std::move(detail), .origin = "auth"};
}

Result<Credential> credential_of(std::string_view text) {
    if (text.empty()) return std::unexpected(missing_credential());
    if (text.size() > kMaxCredential) return std::unexpected(invalid_key());
    return Credential{.text = text, .is_token = text.starts_with(kTokenPrefix)};
}

Result<Credential> bearer_of(std::string_view value) {
    if (!value.empty() && !has_bearer_scheme(value))
        return std::unexpected(
            unauthenticated("authorization must be \"Bearer\" and an API key or a token from POST "
                            "/v1/auth/token"));
    return credential_of(value.empty() ? value : trim_blanks(value.substr(6)));
}

}  // namespace

Error missing_credential() {
    return unauthenticated(
        "missing credentials: send an API key in x-api-key or as authorization: Bearer");
}

Error invalid_key() { return unauthenticated("invalid x-api-key or bearer token"); }

// A refused token is worth a quick retry: the SDKs' credential providers fetch a new one first
// (wire-contract §9.2).
Error invalid_token() {
    Error e = unauthenticated("invalid token: get a new one from POST /v1/auth/token");
    e.retry_after_ms = 1;
    return e;
}

Error expired_token() {
    Error e = unauthenticated("the token has expired: get a new one from POST /v1/auth/token");
    e.retry_after_ms = 1;
    return e;
}

Result<Credentials> read_credentials(std::string_view x_api_key, std::string_view authorization) {
    const auto key = credential_of(trim_blanks(x_api_key));
    const auto bearer = bearer_of(trim_blanks(authorization));
    if (key && bearer && key->text != bearer->text)
        return Credentials{.first = *key, .second = *bearer};
    if (key) return Credentials{.first = *key, .second = {}};
    if (bearer) return Credentials{.first = *bearer, .second = {}};
    return std::unexpected(trim_blanks(x_api_key).empty() ? bearer.error() : key.error());
}

}  // namespace zerohop::auth
