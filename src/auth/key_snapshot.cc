#include "auth/key_snapshot.h"

#include <fmt/format.h>

#include <atomic>
#include <bit>
#include <cstring>
#include <set>

namespace zerohop::auth {
namespace {

std::uint64_t prefix_of(const Digest& digest) {
    std::uint64_t prefix;
    std::memcpy(&prefix, digest.data(), sizeof prefix);
    return prefix;
}

std::uint64_t next_serial() {
    static std::atomic<std::uint64_t> next{1};
    return next.fetch_add(1, std::memory_order_relaxed);
}

std::string_view view(const Digest& digest) {
    return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

bool valid_name(std::string_view name) {
    if (name.empty() || name.size() > 64) return false;
    for (const char c : name) {
        const bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
        if (!fine) return false;
    }
    return true;
}

KeySnapshot::KeySnapshot(Content content) : content_(std::move(content)), serial_(next_serial()) {
    std::size_t secrets = 0;
    for (const KeyRecord& key : content_.keys) secrets += key.secrets.size();
    table_.resize(std::bit_ceil(secrets * 2 + 2));
    const std::size_t mask = table_.size() - 1;
    for (std::uint32_t k = 0; k < content_.keys.size(); ++k) {
        const KeyRecord& key = content_.keys[k];
        by_id_.emplace(key.id, k);
        for (std::uint32_t s = 0; s < key.secrets.size(); ++s) {
            const std::uint64_t prefix = prefix_of(key.secrets[s].digest);
            std::size_t at = prefix & mask;
            while (table_[at].key != 0) at = (at + 1) & mask;
            table_[at] = {.prefix = prefix, .key = k + 1, .secret = s};
            has_kind_[static_cast<int>(key.secrets[s].kind)] = true;
        }
    }
}

const KeyRecord* KeySnapshot::probe(const Digest& digest, HashKind kind, WallNs now) const {
    const std::size_t mask = table_.size() - 1;
    const std::uint64_t prefix = prefix_of(digest);
    for (std::size_t at = prefix & mask; table_[at].key != 0; at = (at + 1) & mask) {
        if (table_[at].prefix != prefix) continue;
        const KeyRecord& key = content_.keys[table_[at].key - 1];
        const KeySecret& secret = key.secrets[table_[at].secret];
        if (secret.kind != kind || !equal_in_constant_time(view(secret.digest), view(digest)))
            continue;
        if (key.revoked_ns != 0 || (secret.expires_ns != 0 && now >= secret.expires_ns)) continue;
        return &key;
    }
    return nullptr;
}

const KeyRecord* KeySnapshot::find_by_secret(std::string_view secret, WallNs now) const {
    if (has_kind_[static_cast<int>(HashKind::kBlake2b)]) {
        if (const KeyRecord* key =
                probe(keyed_digest(content_.hash_key, secret), HashKind::kBlake2b, now))
            return key;
    }
    if (has_kind_[static_cast<int>(HashKind::kSha256)])
        return probe(sha256(secret), HashKind::kSha256, now);
    return nullptr;
}

const KeyRecord* KeySnapshot::find_by_id(std::string_view id) const {
    const auto it = by_id_.find(id);
    return it == by_id_.end() ? nullptr : &content_.keys[it->second];
}

const TokenSecret* KeySnapshot::current_token_secret() const {
    for (const TokenSecret& secret : content_.token_secrets)
        if (secret.retires_ns == 0) return &secret;
    return nullptr;
}

const TokenSecret* KeySnapshot::find_token_secret(std::string_view id, WallNs now) const {
    for (const TokenSecret& secret : content_.token_secrets)
        if (secret.id == id && (secret.retires_ns == 0 || now < secret.retires_ns)) return &secret;
    return nullptr;
}

Result<std::shared_ptr<const KeySnapshot>> make_static_keys(const std::vector<StaticKey>& keys,
                                                            WallNs now) {
    KeySnapshot::Content content;
    random_bytes(content.hash_key);
    std::set<std::string_view> ids;
    std::set<Digest> digests;
    const auto refuse = [](std::size_t i, std::string_view what) {
        return fail(Code::kInvalidRequest, "auth", fmt::format("auth.keys[{}]: {}", i, what));
    };
    for (std::size_t i = 0; i < keys.size(); ++i) {
        const StaticKey& key = keys[i];
        if (!valid_name(key.id)) return refuse(i, "id must be 1 to 64 of [A-Za-z0-9._-]");
        if (!valid_name(key.workspace))
            return refuse(i, "workspace must be 1 to 64 of [A-Za-z0-9._-]");
        if (!ids.insert(key.id).second)
            return refuse(i, fmt::format("id \"{}\" is used twice", key.id));
        const std::optional<Digest> digest = parse_hex_digest(key.sha256);
        if (!digest)
            return refuse(i, "sha256 must be 64 hex digits (printf %s \"$KEY\" | sha256sum)");
        if (!digests.insert(*digest).second)
            return refuse(i, fmt::format("the key of \"{}\" is listed twice", key.id));
        KeyRecord record;
        record.id = key.id;
        record.workspace = key.workspace;
        record.created_ns = now;
        record.secrets = {{.kind = HashKind::kSha256, .digest = *digest}};
        record.priority_max = key.priority_max;
        record.lanes = {"*"};
        record.admin = key.admin;
        content.keys.push_back(std::move(record));
    }
    TokenSecret secret{.id = random_id(8), .created_ns = now};
    random_bytes(secret.bytes);
    content.token_secrets.push_back(secret);
    return std::make_shared<const KeySnapshot>(std::move(content));
}

}  // namespace zerohop::auth
