// The few primitives of this module, over libsodium.
//
// Threads: any; pure functions. random_bytes() aborts when the kernel has no entropy source;
// nothing else fails.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace zerohop::auth {

using Digest = std::array<std::uint8_t, 32>;
using SecretBytes = std::array<std::uint8_t, 32>;

void random_bytes(std::span<std::uint8_t> out);

// BLAKE2b-256 keyed with `key`: the hash of secrets in the key file.
Digest keyed_digest(const SecretBytes& key, std::string_view secret);
// SHA-256: the hash of secrets in the configuration, so that `printf %s KEY | sha256sum` makes one.
Digest sha256(std::string_view secret);

// Equal bytes? Time depends on the lengths alone. Eight bytes a step: libsodium's byte loop costs
// ~1 ns/byte, which for a 400-byte token is more than the rest of a cached check.
bool equal_in_constant_time(std::string_view a, std::string_view b);

// Base64url without padding (RFC 4648 §5), strict: unused trailing bits must be zero, so that every
// token has exactly one spelling. Not constant-time: used on public text only.
std::string base64url(std::span<const std::uint8_t> bytes);
std::optional<std::size_t> decode_base64url(std::string_view text, std::span<std::uint8_t> out);

std::string to_hex(std::span<const std::uint8_t> bytes);
std::optional<Digest> parse_hex_digest(std::string_view hex);  // 64 digits, either case

// n characters of a–z and 2–7, 5 bits of randomness each: ids that people read aloud.
std::string random_id(std::size_t n);

}  // namespace zerohop::auth
