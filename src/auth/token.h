// Short-lived tokens: what they claim, how they are made and checked. Format:
// docs/formats/token.md.
//
// Threads: mint_token and TokenVerifier::check by any thread, but a TokenVerifier belongs to one
// (PerThread). Nothing is looked up beyond the snapshot passed in.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "auth/key_snapshot.h"
#include "base/clock.h"
#include "base/error.h"

namespace zerohop::auth {

inline constexpr std::int64_t kTokenLifetimeS = 300;
// How far this host's clock may be behind that of the one that issued a token (or have been set
// back).
inline constexpr std::int64_t kClockLeewayS = 30;

struct TokenClaims {
    std::string token_id;             // "jti"; names the token's own quota bucket
    std::string key_id;               // "sub"
    std::uint32_t generation = 0;     // "gen": the key's, when it was issued
    WallNs issued_ns = 0;             // "iat", whole seconds
    WallNs expires_ns = 0;            // "exp", whole seconds
    std::vector<std::string> models;  // "model_scope"; {"*"}: all that the key may use
    std::string region;               // "region_hint"; "": any
    Limits quota;                     // "rate_limit_quota"; 0: no narrower than the key
};

// Signs with the snapshot's current secret. Fails with kUnavailable when it has none, with
// kInvalidRequest when the claims make a token longer than kMaxCredential.
Result<std::string> mint_token(const KeySnapshot& keys, const TokenClaims& claims);

// What a check tells. Pointers are valid until the verifier's next check(); `key` lives in the
// snapshot that was passed.
struct VerifiedToken {
    const KeyRecord* key = nullptr;
    const TokenClaims* claims = nullptr;
    // Where the caller may keep what it derived from the claims; empty at first sight. Freed with
    // the cache entry, by the thread that owns the verifier.
    std::shared_ptr<void>* attachment = nullptr;
    bool first_sight = false;
};

// Checks tokens and remembers those that were good: a bounded cache of one thread.
//
// A remembered token is compared whole and in constant time; expiry, the key's generation and
// revocation and the secret's retirement are checked every time. Only genuine tokens enter the
// cache, so strangers cannot push others out. Bound: kSets * kWays entries of ≤ kMaxCredential
// bytes of token plus claims.
class TokenVerifier {
  public:
    TokenVerifier();
    ~TokenVerifier();
    TokenVerifier(const TokenVerifier&) = delete;
    TokenVerifier& operator=(const TokenVerifier&) = delete;

    // Fails with kAuthentication: invalid_token() or expired_token().
    Result<VerifiedToken> check(const KeySnapshot& keys, std::string_view token, WallNs now);

    static constexpr std::size_t kSets = 128;
    static constexpr std::size_t kWays = 4;  // 64 tokens in use then hardly ever crowd one set

  private:
    struct Entry;
    struct Parser;
    Entry* cached(std::string_view token);
    Entry& oldest_in_set(std::string_view token);
    Result<VerifiedToken> check_claims(const KeySnapshot& keys, Entry& entry, WallNs now);
    Status open(const KeySnapshot& keys, std::string_view token, WallNs now, Entry& into);

    std::vector<Entry> entries_;
    std::uint64_t uses_ = 0;
    std::unique_ptr<Parser> parser_;
    std::unique_ptr<Entry> fresh_;  // where a token is unpacked before it may enter the cache
};

}  // namespace zerohop::auth
