#include "auth/crypto.h"

#include <sodium.h>

#include <cstring>

#include "base/check.h"

namespace zerohop::auth {
namespace {

// sodium_init() picks the vector code paths; safe to call from several threads, once is enough.
const bool g_ready = [] {
    ZH_CHECK(sodium_init() >= 0);
    return true;
}();

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

constexpr std::array<std::int8_t, 256> kValue = [] {
    std::array<std::int8_t, 256> table{};
    table.fill(-1);
    for (std::size_t i = 0; i < kAlphabet.size(); ++i)
        table[static_cast<unsigned char>(kAlphabet[i])] = static_cast<std::int8_t>(i);
    return table;
}();

const std::uint8_t* as_bytes(std::string_view text) {
    return reinterpret_cast<const std::uint8_t*>(text.data());
}

}  // namespace

void random_bytes(std::span<std::uint8_t> out) {
    ZH_CHECK(g_ready);
    randombytes_buf(out.data(), out.size());
}

Digest keyed_digest(const SecretBytes& key, std::string_view secret) {
    Digest out;
    crypto_generichash(out.data(), out.size(), as_bytes(secret), secret.size(), key.data(),
                       key.size());
    return out;
}

Digest sha256(std::string_view secret) {
    Digest out;
    crypto_hash_sha256(out.data(), as_bytes(secret), secret.size());
    return out;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    std::uint64_t differ = 0;
    std::size_t i = 0;
    for (; i + 8 <= a.size(); i += 8) {
        std::uint64_t x, y;
        std::memcpy(&x, a.data() + i, 8);
        std::memcpy(&y, b.data() + i, 8);
        differ |= x ^ y;
    }
    for (; i < a.size(); ++i) differ |= static_cast<unsigned char>(a[i] ^ b[i]);
    // Keeps the compiler from leaving the loop as soon as `differ` is known to be non-zero.
    __asm__ volatile("" : "+r"(differ));
    return differ == 0;
}

std::string base64url(std::span<const std::uint8_t> bytes) {
    std::string out;
    out.reserve((bytes.size() * 4 + 2) / 3);
    std::uint32_t buffer = 0;
    int bits = 0;
    for (const std::uint8_t byte : bytes) {
        buffer = (buffer << 8) | byte;
        bits += 8;
        while (bits >= 6) {
            bits -= 6;
            out += kAlphabet[(buffer >> bits) & 63];
        }
    }
    if (bits > 0) out += kAlphabet[(buffer << (6 - bits)) & 63];
    return out;
}

std::optional<std::size_t> decode_base64url(std::string_view text, std::span<std::uint8_t> out) {
    if (text.size() % 4 == 1) return {};
    const std::size_t size = text.size() / 4 * 3 + (text.size() % 4 == 0 ? 0 : text.size() % 4 - 1);
    if (size > out.size()) return {};
    std::size_t at = 0;
    std::size_t i = 0;
    for (; i + 4 <= text.size(); i += 4) {
        const int a = kValue[static_cast<unsigned char>(text[i])];
        const int b = kValue[static_cast<unsigned char>(text[i + 1])];
        const int c = kValue[static_cast<unsigned char>(text[i + 2])];
        const int d = kValue[static_cast<unsigned char>(text[i + 3])];
        if ((a | b | c | d) < 0) return {};
        out[at++] = static_cast<std::uint8_t>(a << 2 | b >> 4);
        out[at++] = static_cast<std::uint8_t>(b << 4 | c >> 2);
        out[at++] = static_cast<std::uint8_t>(c << 6 | d);
    }
    if (i == text.size()) return at;
    const int a = kValue[static_cast<unsigned char>(text[i])];
    const int b = kValue[static_cast<unsigned char>(text[i + 1])];
    if ((a | b) < 0) return {};
    out[at++] = static_cast<std::uint8_t>(a << 2 | b >> 4);
    if (i + 2 == text.size()) return (b & 15) == 0 ? std::optional(at) : std::nullopt;
    const int c = kValue[static_cast<unsigned char>(text[i + 2])];
    if (c < 0 || (c & 3) != 0) return {};
    out[at++] = static_cast<std::uint8_t>(b << 4 | c >> 2);
    return at;
}

std::string to_hex(std::span<const std::uint8_t> bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string out;
    out.reserve(bytes.size() * 2);
    for (const std::uint8_t byte : bytes) {
        out += kDigits[byte >> 4];
        out += kDigits[byte & 15];
    }
    return out;
}

std::optional<Digest> parse_hex_digest(std::string_view hex) {
    Digest out{};
    if (hex.size() != out.size() * 2) return {};
    for (std::size_t i = 0; i < hex.size(); ++i) {
        const char c = hex[i];
        int value = 0;
        if (c >= '0' && c <= '9') {
            value = c - '0';
        } else if (c >= 'a' && c <= 'f') {
            value = c - 'a' + 10;
        } else if (c >= 'A' && c <= 'F') {
            value = c - 'A' + 10;
        } else {
            return {};
        }
        out[i / 2] = static_cast<std::uint8_t>(out[i / 2] << 4 | value);
    }
    return out;
}

std::string random_id(std::size_t n) {
    constexpr std::string_view kBase32 = "abcdefghijklmnopqrstuvwxyz234567";
    std::string out(n, 'a');
    random_bytes({reinterpret_cast<std::uint8_t*>(out.data()), out.size()});
    for (char& c : out) c = kBase32[static_cast<unsigned char>(c) & 31];
    return out;
}

}  // namespace zerohop::auth
