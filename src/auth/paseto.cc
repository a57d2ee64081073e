#include "auth/paseto.h"

#include <sodium.h>

#include <cstring>

namespace zerohop::auth {
namespace {

constexpr std::string_view kHeader = "v4.local.";
constexpr std::size_t kNonce = 32;
constexpr std::size_t kTag = 32;

struct Keys {
    std::uint8_t encrypt[32 + crypto_stream_xchacha20_NONCEBYTES];  // Ek | n2
    std::uint8_t authenticate[32];
    ~Keys() {
        sodium_memzero(encrypt, sizeof encrypt);
        sodium_memzero(authenticate, sizeof authenticate);
    }
};

void derive(std::uint8_t* out, std::size_t size, const SecretBytes& key, std::string_view label,
            const std::uint8_t* nonce) {
    std::uint8_t input[64];
    std::memcpy(input, label.data(), label.size());
    std::memcpy(input + label.size(), nonce, kNonce);
    crypto_generichash(out, size, input, label.size() + kNonce, key.data(), key.size());
}

void derive_keys(Keys& keys, const SecretBytes& key, const std::uint8_t* nonce) {
    derive(keys.encrypt, sizeof keys.encrypt, key, "paseto-encryption-key", nonce);
    derive(keys.authenticate, sizeof keys.authenticate, key, "paseto-auth-key-for-aead", nonce);
}

// Pre-authentication encoding, hashed as it is made: the number of pieces, then each piece behind
// its length, all little-endian 64-bit with the top bit clear.
class PaeHash {
  public:
    PaeHash(const std::uint8_t* key, std::uint64_t pieces) {
        crypto_generichash_init(&state_, key, 32, kTag);
        put(pieces);
    }
    void piece(const void* bytes, std::size_t size) {
        put(size);
        crypto_generichash_update(&state_, static_cast<const std::uint8_t*>(bytes), size);
    }
    void finish(std::uint8_t* tag) { crypto_generichash_final(&state_, tag, kTag); }

  private:
    void put(std::uint64_t n) {
        std::uint8_t le[8];
        for (std::size_t i = 0; i < 8; ++i) le[i] = static_cast<std::uint8_t>(n >> (8 * i));
        le[7] &= 0x7f;
        crypto_generichash_update(&state_, le, sizeof le);
    }
    crypto_generichash_state state_;
};

void compute_tag(const Keys& keys, const std::uint8_t* nonce, const std::uint8_t* cipher,
                 std::size_t size, std::string_view footer, std::string_view implicit,
                 std::uint8_t* tag) {
    PaeHash hash(keys.authenticate, 5);
    hash.piece(kHeader.data(), kHeader.size());
    hash.piece(nonce, kNonce);
    hash.piece(cipher, size);
    hash.piece(footer.data(), footer.size());
    hash.piece(implicit.data(), implicit.size());
    hash.finish(tag);
}

}  // namespace

std::optional<PasetoParts> split_paseto(std::string_view token) {
    if (!token.starts_with(kHeader)) return {};
    token.remove_prefix(kHeader.size());
    const std::size_t dot = token.find('.');
    PasetoParts parts{.body = token.substr(0, dot), .footer = {}};
    if (dot != std::string_view::npos) {
        parts.footer = token.substr(dot + 1);
        if (parts.footer.empty() || parts.footer.find('.') != std::string_view::npos) return {};
    }
    if (parts.body.size() < (kPasetoOverhead * 4 + 2) / 3) return {};
    return parts;
}

std::string seal_paseto(const SecretBytes& key, std::string_view message, std::string_view footer,
                        std::string_view implicit, std::span<const std::uint8_t, 32> nonce) {
    Keys keys;
    derive_keys(keys, key, nonce.data());
    std::string raw(kPasetoOverhead + message.size(), '\0');
    auto* bytes = reinterpret_cast<std::uint8_t*>(raw.data());
    std::memcpy(bytes, nonce.data(), kNonce);
    std::uint8_t* cipher = bytes + kNonce;
    crypto_stream_xchacha20_xor(cipher, reinterpret_cast<const std::uint8_t*>(message.data()),
                                message.size(), keys.encrypt + 32, keys.encrypt);
    compute_tag(keys, bytes, cipher, message.size(), footer, implicit, cipher + message.size());
    std::string token(kHeader);
    token += base64url({bytes, raw.size()});
    if (!footer.empty()) {
        token += '.';
        token += base64url({reinterpret_cast<const std::uint8_t*>(footer.data()), footer.size()});
    }
    return token;
}

std::optional<std::size_t> open_paseto(const SecretBytes& key, const PasetoParts& parts,
                                       std::string_view footer, std::string_view implicit,
                                       std::span<std::uint8_t> out) {
    const std::optional<std::size_t> size = decode_base64url(parts.body, out);
    if (!size || *size < kPasetoOverhead) return {};
    std::uint8_t nonce[kNonce];
    std::memcpy(nonce, out.data(), kNonce);
    const std::size_t message_size = *size - kPasetoOverhead;
    const std::uint8_t* cipher = out.data() + kNonce;

    Keys keys;
    derive_keys(keys, key, nonce);
    std::uint8_t tag[kTag];
    compute_tag(keys, nonce, cipher, message_size, footer, implicit, tag);
    if (sodium_memcmp(tag, cipher + message_size, kTag) != 0) return {};
    // Decrypts in place, then moves the message to the front.
    crypto_stream_xchacha20_xor(out.data() + kNonce, cipher, message_size, keys.encrypt + 32,
                                keys.encrypt);
    std::memmove(out.data(), out.data() + kNonce, message_size);
    return message_size;
}

}  // namespace zerohop::auth
