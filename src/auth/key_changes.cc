// What `zerohop key` does to a content. No I/O here: key_file.cc reads and writes.
#include <fmt/format.h>

#include <algorithm>

#include "auth/key_file.h"
#include "auth/token.h"
#include "base/edit_distance.h"

namespace zerohop::auth {
namespace {

std::string make_secret(std::string_view key_id) {
    SecretBytes random;
    random_bytes(random);
    // The id inside lets whoever finds a leaked secret say which key to revoke.
    return fmt::format("zh_{}_{}", key_id.substr(key_id.find('_') + 1), base64url(random));
}

KeySecret hashed(const KeySnapshot::Content& content, std::string_view secret) {
    return {.kind = HashKind::kBlake2b, .digest = keyed_digest(content.hash_key, secret)};
}

Result<KeyRecord*> find(KeySnapshot::Content& content, std::string_view id) {
    const KeyRecord* nearest = nullptr;
    std::size_t best = 5;
    for (KeyRecord& key : content.keys) {
        if (key.id == id) return &key;
        if (const std::size_t d = edit_distance(id.substr(0, 64), key.id); d < best) {
            best = d;
            nearest = &key;
        }
    }
    std::string text = fmt::format("there is no key \"{}\"", id.substr(0, 64));
    if (nearest != nullptr) text += fmt::format("; did you mean {}?", nearest->id);
    return fail(Code::kNotFound, "auth", std::move(text));
}

Status check_limit(std::string_view name, std::int64_t value) {
    if (value >= 0 && value <= kMaxLimit) return {};
    return fail(Code::kInvalidRequest, "auth",
                fmt::format("{} must be 0 (none) to {}, got {}", name, kMaxLimit, value));
}

Status check(const NewKey& wanted) {
    if (!valid_name(wanted.workspace))
        return fail(Code::kInvalidRequest, "auth",
                    fmt::format("workspace must be 1 to 64 of [A-Za-z0-9._-], got \"{}\"",
                                wanted.workspace));
    if (wanted.name.size() > 256)
        return fail(Code::kInvalidRequest, "auth", "name is longer than 256 bytes");
    for (const auto& [name, value] :
         {std::pair{"requests per minute", wanted.limits.requests},
          std::pair{"input tokens per minute", wanted.limits.input_tokens},
          std::pair{"output tokens per minute", wanted.limits.output_tokens},
          std::pair{"burst of requests", wanted.burst.requests},
          std::pair{"burst of input tokens", wanted.burst.input_tokens},
          std::pair{"burst of output tokens", wanted.burst.output_tokens}})
        if (Status s = check_limit(name, value); !s) return s;
    if (has_stray_burst(wanted.limits, wanted.burst))
        return fail(Code::kInvalidRequest, "auth",
                    "a burst needs the limit that it belongs to: requests, input tokens or output "
                    "tokens per minute");
    for (const std::string& lane : wanted.lanes)
        if (lane != "*" && !valid_name(lane))
            return fail(Code::kInvalidRequest, "auth",
                        fmt::format("lane \"{}\" is not a name", lane));
    if (wanted.lanes.empty() || wanted.models.empty())
        return fail(Code::kInvalidRequest, "auth", "a key needs at least one model and one lane");
    for (const std::string& model : wanted.models)
        if (model.empty() || model.size() > 256)
            return fail(Code::kInvalidRequest, "auth", "models must be 1 to 256 bytes long each");
    return {};
}

}  // namespace

Result<KeyWithSecret> create_key(KeySnapshot::Content& content, const NewKey& wanted, WallNs now) {
    if (Status s = check(wanted); !s) return std::unexpected(s.error());
    KeyRecord record;
    record.id = "key_" + random_id(10);  // 50 bits: told apart, not kept secret
    record.name = wanted.name;
    record.workspace = wanted.workspace;
    record.created_ns = now;
    record.limits = wanted.limits;
    record.burst = wanted.burst;
    record.priority_max = wanted.priority_max;
    record.models = wanted.models;
    record.lanes = wanted.lanes;
    record.admin = wanted.admin;
    const std::string secret = make_secret(record.id);
    record.secrets = {hashed(content, secret)};
    content.keys.push_back(record);
    if (content.token_secrets.empty()) rotate_token_secret(content, 0, now);
    return KeyWithSecret{.record = std::move(record), .secret = secret};
}

Result<KeyRecord> revoke_key(KeySnapshot::Content& content, std::string_view id, WallNs now) {
    Result<KeyRecord*> key = find(content, id);
    if (!key) return std::unexpected(key.error());
    if ((*key)->revoked_ns != 0)
        return fail(Code::kConflict, "auth", fmt::format("{} is revoked already", id));
    (*key)->revoked_ns = now;
    return **key;
}

Result<KeyWithSecret> rotate_key_secret(KeySnapshot::Content& content, std::string_view id,
                                        std::int64_t overlap_s, WallNs now) {
    Result<KeyRecord*> found = find(content, id);
    if (!found) return std::unexpected(found.error());
    KeyRecord& key = **found;
    if (key.revoked_ns != 0)
        return fail(Code::kConflict, "auth", fmt::format("{} is revoked: create a new key", id));
    const std::string secret = make_secret(key.id);
    if (overlap_s <= 0) {
        key.secrets.clear();
        ++key.generation;
    } else {
        // At most one predecessor stays, the one in use until now.
        std::erase_if(key.secrets, [](const KeySecret& s) { return s.expires_ns != 0; });
        for (KeySecret& old : key.secrets) old.expires_ns = now + overlap_s * kNsPerSec;
    }
    key.secrets.insert(key.secrets.begin(), hashed(content, secret));
    return KeyWithSecret{.record = key, .secret = secret};
}

TokenSecret rotate_token_secret(KeySnapshot::Content& content, std::int64_t overlap_s, WallNs now) {
    std::erase_if(content.token_secrets, [&](const TokenSecret& s) {
        return overlap_s <= 0 || (s.retires_ns != 0 && now >= s.retires_ns);
    });
    for (TokenSecret& old : content.token_secrets)
        if (old.retires_ns == 0) old.retires_ns = now + overlap_s * kNsPerSec;
    TokenSecret fresh{.id = random_id(8), .created_ns = now};
    random_bytes(fresh.bytes);
    content.token_secrets.insert(content.token_secrets.begin(), fresh);
    return fresh;
}

}  // namespace zerohop::auth
