// PASETO v4.local: authenticated encryption of a small message under one symmetric secret.
//
// Implements the public specification (version 4, purpose local) on libsodium:
//
//     token  = "v4.local." b64(nonce[32] | cipher | tag[32]) ["." b64(footer)]
//     Ek|n2  = BLAKE2b-448(key, "paseto-encryption-key" | nonce)     32 + 24 bytes
//     Ak     = BLAKE2b-256(key, "paseto-auth-key-for-aead" | nonce)
//     cipher = XChaCha20(Ek, n2, message)
//     tag    = BLAKE2b-256(Ak, PAE("v4.local.", nonce, cipher, footer, implicit))
//
// Threads: any; pure functions. The tag is compared in constant time before anything is decrypted;
// every failure looks the same to the caller.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "auth/crypto.h"

namespace zerohop::auth {

inline constexpr std::size_t kPasetoOverhead = 64;  // nonce and tag, before base64

// The parts of a well-formed token, still encoded; nullopt for any other text.
struct PasetoParts {
    std::string_view body;    // base64url, at least nonce and tag
    std::string_view footer;  // base64url, "" when there is none
};
std::optional<PasetoParts> split_paseto(std::string_view token);

// `nonce` must be fresh random bytes for each message (tests pass those of the vectors).
std::string seal_paseto(const SecretBytes& key, std::string_view message, std::string_view footer,
                        std::string_view implicit, std::span<const std::uint8_t, 32> nonce);

// Checks and decrypts into `out` (as large as the encoded body suffices) and returns the message's
// size. `footer` is the decoded footer. nullopt: forged, damaged, other key or other version.
std::optional<std::size_t> open_paseto(const SecretBytes& key, const PasetoParts& parts,
                                       std::string_view footer, std::string_view implicit,
                                       std::span<std::uint8_t> out);

}  // namespace zerohop::auth
