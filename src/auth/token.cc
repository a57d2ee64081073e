// Invariant: an Entry with a non-empty token was opened with a genuine secret; everything that can
// change later is rechecked by check_claims().
#include "auth/token.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "auth/credential.h"
#include "auth/paseto.h"
#include "base/rfc3339.h"

namespace zerohop::auth {
namespace {

// Binds tokens to this use: one sealed for anything else with the same secret is not accepted.
constexpr std::string_view kImplicit = "zerohop/auth/v1";
constexpr std::string_view kFooterHead = R"({"kid":")";
constexpr std::string_view kFooterTail = R"("})";
constexpr std::size_t kMaxFooter = 64;

std::string make_footer(std::string_view secret_id) {
    return fmt::format("{}{}{}", kFooterHead, secret_id, kFooterTail);
}

// The secret's id out of a decoded footer; our own writer is the only one, so its exact form is
// demanded and no JSON parser sees unauthenticated text.
std::string_view footer_secret_id(std::string_view footer) {
    if (!footer.starts_with(kFooterHead) || !footer.ends_with(kFooterTail) ||
        footer.size() < kFooterHead.size() + kFooterTail.size())
        return {};
    const std::string_view id =
        footer.substr(kFooterHead.size(), footer.size() - kFooterHead.size() - kFooterTail.size());
    return valid_name(id) ? id : std::string_view{};
}

bool read_string(const simdjson::dom::object& object, std::string_view key, std::string& out) {
    std::string_view value;
    if (object[key].get(value) != simdjson::SUCCESS) return false;
    out = value;
    return true;
}

bool read_time(const simdjson::dom::object& object, std::string_view key, WallNs& out) {
    std::string_view text;
    if (object[key].get(text) != simdjson::SUCCESS) return false;
    const std::optional<WallNs> time = parse_rfc3339(text);
    if (!time) return false;
    out = *time;
    return true;
}

bool read_quota(const simdjson::dom::object& object, Limits& out) {
    simdjson::dom::object quota;
    if (object["rate_limit_quota"].get(quota) != simdjson::SUCCESS) return false;
    const auto limit = [&](std::string_view key, std::int64_t& value) {
        const auto error = quota[key].get(value);
        if (error == simdjson::NO_SUCH_FIELD) return true;
        return error == simdjson::SUCCESS && value >= 0 && value <= kMaxLimit;
    };
    return limit("requests", out.requests) && limit("input_tokens", out.input_tokens) &&
           limit("output_tokens", out.output_tokens);
}

bool read_claims(const simdjson::dom::object& object, TokenClaims& out) {
    std::int64_t generation = 0;
    simdjson::dom::array models;
    if (!read_string(object, "jti", out.token_id) || !read_string(object, "sub", out.key_id) ||
        !read_string(object, "region_hint", out.region) ||
        !read_time(object, "iat", out.issued_ns) || !read_time(object, "exp", out.expires_ns) ||
        !read_quota(object, out.quota) || object["gen"].get(generation) != simdjson::SUCCESS ||
        generation < 0 || generation > UINT32_MAX ||
        object["model_scope"].get(models) != simdjson::SUCCESS)
        return false;
    out.generation = static_cast<std::uint32_t>(generation);
    for (const simdjson::dom::element model : models) {
        std::string_view name;
        if (model.get(name) != simdjson::SUCCESS) return false;
        out.models.emplace_back(name);
    }
    return true;
}

nlohmann::ordered_json quota_json(const Limits& quota) {
    nlohmann::ordered_json json = nlohmann::ordered_json::object();
    if (quota.requests != 0) json["requests"] = quota.requests;
    if (quota.input_tokens != 0) json["input_tokens"] = quota.input_tokens;
    if (quota.output_tokens != 0) json["output_tokens"] = quota.output_tokens;
    return json;
}

}  // namespace

Result<std::string> mint_token(const KeySnapshot& keys, const TokenClaims& claims) {
    const TokenSecret* secret = keys.current_token_secret();
    if (secret == nullptr)
        return fail(Code::kUnavailable, "auth",
                    "this server has no token secret (zerohop key rotate-secret makes one)");
    nlohmann::ordered_json json;
    json["jti"] = claims.token_id;
    json["sub"] = claims.key_id;
    json["gen"] = claims.generation;
    json["iat"] = format_rfc3339(claims.issued_ns);
    json["exp"] = format_rfc3339(claims.expires_ns);
    json["model_scope"] = claims.models;
    json["region_hint"] = claims.region;
    json["rate_limit_quota"] = quota_json(claims.quota);
    const std::string message = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    std::array<std::uint8_t, 32> nonce;
    random_bytes(nonce);
    std::string token =
        seal_paseto(secret->bytes, message, make_footer(secret->id), kImplicit, nonce);
    if (token.size() > kMaxCredential)
        return fail(Code::kInvalidRequest, "auth",
                    fmt::format("model_scope: the token would be {} bytes long, the limit is {}; "
                                "name fewer models",
                                token.size(), kMaxCredential));
    return token;
}

struct TokenVerifier::Entry {
    std::string token;
    std::string secret_id;
    TokenClaims claims;
    std::shared_ptr<void> attachment;
    // What was found in the snapshot with this serial; anything newer is looked up again.
    std::uint64_t snapshot = 0;
    std::size_t key_index = 0;
    bool good = false;          // key in force, generation unchanged, secret not retired
    WallNs valid_until_ns = 0;  // the token's expiry or its secret's retirement
    std::uint64_t used = 0;     // when, counted in uses
};

struct TokenVerifier::Parser {
    simdjson::dom::parser dom;
    // Decoded token, then the message with the padding that simdjson reads into.
    std::array<std::uint8_t, kMaxCredential + simdjson::SIMDJSON_PADDING> bytes;
};

TokenVerifier::TokenVerifier()
    : entries_(kSets * kWays), parser_(std::make_unique<Parser>()), fresh_(new Entry) {}
TokenVerifier::~TokenVerifier() = default;

namespace {
// The nonce is random, so the first characters behind the prefix spread tokens evenly.
std::size_t set_of(std::string_view token) {
    std::uint64_t head = 0;
    if (token.size() >= kTokenPrefix.size() + sizeof head)
        std::memcpy(&head, token.data() + kTokenPrefix.size(), sizeof head);
    return (head * 0x9e3779b97f4a7c15ULL >> 32) % TokenVerifier::kSets;
}
}  // namespace

TokenVerifier::Entry* TokenVerifier::cached(std::string_view token) {
    Entry* set = &entries_[set_of(token) * kWays];
    for (std::size_t way = 0; way < kWays; ++way) {
        if (!equal_in_constant_time(set[way].token, token)) continue;
        set[way].used = ++uses_;
        return &set[way];
    }
    return nullptr;
}

TokenVerifier::Entry& TokenVerifier::oldest_in_set(std::string_view token) {
    const auto set = entries_.begin() + static_cast<std::ptrdiff_t>(set_of(token) * kWays);
    return *std::min_element(set, set + kWays,
                             [](const Entry& a, const Entry& b) { return a.used < b.used; });
}

Status TokenVerifier::open(const KeySnapshot& keys, std::string_view token, WallNs now,
                           Entry& into) {
    const auto parts = split_paseto(token);
    if (!parts) return std::unexpected(invalid_token());
    std::array<std::uint8_t, kMaxFooter> footer_bytes;
    const auto footer_size = decode_base64url(parts->footer, footer_bytes);
    if (!footer_size) return std::unexpected(invalid_token());
    const std::string_view footer(reinterpret_cast<const char*>(footer_bytes.data()), *footer_size);
    const std::string_view secret_id = footer_secret_id(footer);
    const TokenSecret* secret = keys.find_token_secret(secret_id, now);
    if (secret == nullptr) return std::unexpected(invalid_token());

    std::span<std::uint8_t> room(parser_->bytes.data(), kMaxCredential);
    const auto size = open_paseto(secret->bytes, *parts, footer, kImplicit, room);
    if (!size) return std::unexpected(invalid_token());
    simdjson::dom::object object;
    TokenClaims claims;
    if (parser_->dom.parse(parser_->bytes.data(), *size, false).get(object) != simdjson::SUCCESS ||
        !read_claims(object, claims))
        return std::unexpected(invalid_token());
    into.token = token;
    into.secret_id = secret_id;
    into.claims = std::move(claims);
    into.attachment = nullptr;
    into.snapshot = 0;
    return {};
}

Result<VerifiedToken> TokenVerifier::check_claims(const KeySnapshot& keys, Entry& entry,
                                                  WallNs now) {
    const TokenClaims& claims = entry.claims;
    if (entry.snapshot != keys.serial()) {
        const KeyRecord* key = keys.find_by_id(claims.key_id);
        const TokenSecret* secret = keys.find_token_secret(entry.secret_id, now);
        entry.snapshot = keys.serial();
        entry.good = key != nullptr && secret != nullptr && key->revoked_ns == 0 &&
                     key->generation == claims.generation;
        if (entry.good) {
            entry.key_index = keys.index_of(*key);
            entry.valid_until_ns = claims.expires_ns;
            if (secret->retires_ns != 0)
                entry.valid_until_ns = std::min(entry.valid_until_ns, secret->retires_ns);
        }
    }
    if (!entry.good) return std::unexpected(invalid_token());
    if (now >= entry.valid_until_ns) return std::unexpected(expired_token());
    // From the future: the clock was set back, or another host's runs ahead. The client gets a new
    // token, so this heals itself; accepting it would stretch the token's life by the step.
    if (claims.issued_ns > now + kClockLeewayS * kNsPerSec ||
        claims.expires_ns - claims.issued_ns > kTokenLifetimeS * kNsPerSec)
        return std::unexpected(invalid_token());
    return VerifiedToken{.key = &keys.keys()[entry.key_index],
                         .claims = &entry.claims,
                         .attachment = &entry.attachment};
}

Result<VerifiedToken> TokenVerifier::check(const KeySnapshot& keys, std::string_view token,
                                           WallNs now) {
    if (token.empty() || token.size() > kMaxCredential) return std::unexpected(invalid_token());
    if (Entry* entry = cached(token)) return check_claims(keys, *entry, now);
    if (Status opened = open(keys, token, now, *fresh_); !opened)
        return std::unexpected(std::move(opened).error());
    // Expired or revoked ones are not worth a place.
    if (auto checked = check_claims(keys, *fresh_, now); !checked) return checked;
    Entry& place = oldest_in_set(token);
    std::swap(place, *fresh_);
    fresh_->attachment = nullptr;
    place.used = ++uses_;
    auto checked = check_claims(keys, place, now);
    if (checked) checked->first_sight = true;
    return checked;
}

}  // namespace zerohop::auth
