#include "auth/key_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/rfc3339.h"

namespace zerohop::auth {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kKeysFormat = "zerohop-keys";
constexpr std::string_view kSecretsFormat = "zerohop-token-secrets";
constexpr std::string_view kBlake2b = "blake2b-256:";
constexpr std::string_view kSha256 = "sha256:";
constexpr std::size_t kMaxKeys = 100'000;

Json time_or_null(WallNs t) { return t == 0 ? Json(nullptr) : Json(format_rfc3339(t)); }

Json key_json(const KeyRecord& key) {
    Json secrets = Json::array();
    for (const KeySecret& secret : key.secrets)
        secrets.push_back(
            {{"hash", std::string(secret.kind == HashKind::kBlake2b ? kBlake2b : kSha256) +
                          to_hex(secret.digest)},
             {"expires", time_or_null(secret.expires_ns)}});
    return {{"id", key.id},
            {"name", key.name},
            {"workspace", key.workspace},
            {"created", format_rfc3339(key.created_ns)},
            {"revoked", time_or_null(key.revoked_ns)},
            {"generation", key.generation},
            {"secrets", std::move(secrets)},
            {"limits",
             {{"requests_per_minute", key.limits.requests},
              {"input_tokens_per_minute", key.limits.input_tokens},
              {"output_tokens_per_minute", key.limits.output_tokens}}},
            {"burst",
             {{"requests", key.burst.requests},
              {"input_tokens", key.burst.input_tokens},
              {"output_tokens", key.burst.output_tokens}}},
            {"priority_max", to_string(key.priority_max)},
            {"models", key.models},
            {"lanes", key.lanes},
            {"admin", key.admin}};
}

// Reads typed members of one object and remembers the first thing that is wrong. nlohmann's own
// accessors throw; these do not.
class Reader {
  public:
    Reader(const Json& object, std::string where, std::string& error)
        : object_(object), where_(std::move(where)), error_(error) {
        if (!object.is_object()) wrong("", "an object");
    }

    void text(const char* name, std::string& out) {
        const Json* v = member(name);
        if (v == nullptr) return;
        if (!v->is_string()) return wrong(name, "a string");
        out = *v->get_ptr<const std::string*>();
    }
    void number(const char* name, std::int64_t low, std::int64_t high, std::int64_t& out) {
        const Json* v = member(name);
        if (v == nullptr) return;
        std::int64_t value = low - 1;
        if (v->is_number_unsigned()) {
            const auto u = *v->get_ptr<const std::uint64_t*>();
            if (u <= INT64_MAX) value = static_cast<std::int64_t>(u);
        } else if (v->is_number_integer()) {
            value = *v->get_ptr<const std::int64_t*>();
        }
        if (value < low || value > high)
            return wrong(name, fmt::format("an integer from {} to {}", low, high));
        out = value;
    }
    void flag(const char* name, bool& out) {
        const Json* v = member(name);
        if (v == nullptr) return;
        if (!v->is_boolean()) return wrong(name, "true or false");
        out = *v->get_ptr<const bool*>();
    }
    void time(const char* name, bool nullable, WallNs& out) {
        const Json* v = member(name);
        if (v == nullptr) return;
        if (nullable && v->is_null()) return;
        const auto t = v->is_string() ? parse_rfc3339(*v->get_ptr<const std::string*>())
                                      : std::optional<WallNs>();
        if (!t) return wrong(name, nullable ? "an RFC 3339 time or null" : "an RFC 3339 time");
        out = *t;
    }
    void names(const char* name, std::vector<std::string>& out) {
        const Json* v = member(name);
        if (v == nullptr) return;
        out.clear();
        if (!v->is_array() || v->empty()) return wrong(name, "a non-empty array of strings");
        for (const Json& item : *v) {
            if (!item.is_string()) return wrong(name, "a non-empty array of strings");
            out.push_back(*item.get_ptr<const std::string*>());
        }
    }
    void bytes(const char* name, SecretBytes& out) {
        std::string value;
        text(name, value);
        const auto size = decode_base64url(value, out);
        if (!size || *size != out.size()) wrong(name, "32 bytes in base64url");
    }
    const Json* member(const char* name) {
        if (!error_.empty()) return nullptr;
        const auto it = object_.find(name);
        if (it != object_.end()) return &*it;
        error_ = fmt::format("{}{}{} is missing", where_, where_.empty() ? "" : ".", name);
        return nullptr;
    }
    void wrong(std::string_view name, std::string_view expected) {
        if (!error_.empty()) return;
        error_ = fmt::format("{}{}{} must be {}", where_, where_.empty() || name.empty() ? "" : ".",
                             name, expected);
    }

  private:
    const Json& object_;
    std::string where_;
    std::string& error_;
};

void read_secrets(const Json& array, const std::string& where, KeyRecord& key, std::string& error) {
    if (!array.is_array() || array.size() > 8) {
        error = where + " must be an array of at most 8";
        return;
    }
    for (std::size_t i = 0; i < array.size() && error.empty(); ++i) {
        const std::string at = fmt::format("{}[{}]", where, i);
        Reader r(array[i], at, error);
        KeySecret secret;
        std::string hash;
        r.text("hash", hash);
        r.time("expires", true, secret.expires_ns);
        if (!error.empty()) return;
        const bool blake = hash.starts_with(kBlake2b);
        const std::string_view prefix = blake ? kBlake2b : kSha256;
        const auto digest = hash.starts_with(prefix)
                                ? parse_hex_digest(std::string_view(hash).substr(prefix.size()))
                                : std::nullopt;
        if (!digest) return r.wrong("hash", "\"blake2b-256:\" or \"sha256:\" and 64 hex digits");
        secret.kind = blake ? HashKind::kBlake2b : HashKind::kSha256;
        secret.digest = *digest;
        key.secrets.push_back(secret);
    }
}

void read_limits(const Json& object, const std::string& where, Limits& limits, std::string& error) {
    Reader r(object, where, error);
    r.number("requests_per_minute", 0, kMaxLimit, limits.requests);
    r.number("input_tokens_per_minute", 0, kMaxLimit, limits.input_tokens);
    r.number("output_tokens_per_minute", 0, kMaxLimit, limits.output_tokens);
}

void read_burst(const Json& object, const std::string& where, Limits& burst, std::string& error) {
    Reader r(object, where, error);
    r.number("requests", 0, kMaxLimit, burst.requests);
    r.number("input_tokens", 0, kMaxLimit, burst.input_tokens);
    r.number("output_tokens", 0, kMaxLimit, burst.output_tokens);
}

void read_key(const Json& object, const std::string& where, KeyRecord& key, std::string& error) {
    Reader r(object, where, error);
    std::int64_t generation = 0;
    std::string priority;
    r.text("id", key.id);
    r.text("name", key.name);
    r.text("workspace", key.workspace);
    r.time("created", false, key.created_ns);
    r.time("revoked", true, key.revoked_ns);
    r.number("generation", 1, UINT32_MAX, generation);
    r.text("priority_max", priority);
    r.names("models", key.models);
    r.names("lanes", key.lanes);
    r.flag("admin", key.admin);
    if (const Json* limits = r.member("limits"))
        read_limits(*limits, where + ".limits", key.limits, error);
    // Files of earlier versions do not have it.
    if (error.empty() && object.contains("burst"))
        read_burst(object["burst"], where + ".burst", key.burst, error);
    if (const Json* secrets = r.member("secrets"))
        read_secrets(*secrets, where + ".secrets", key, error);
    if (!error.empty()) return;
    key.generation = static_cast<std::uint32_t>(generation);
    if (!valid_name(key.id)) return r.wrong("id", "1 to 64 of [A-Za-z0-9._-]");
    if (!valid_name(key.workspace)) return r.wrong("workspace", "1 to 64 of [A-Za-z0-9._-]");
    const auto p = parse_priority(priority);
    if (!p) return r.wrong("priority_max", "\"low\", \"normal\" or \"high\"");
    key.priority_max = *p;
}

// Parses and checks format and version; null with `error` set when that fails.
Json open_document(std::string_view text, std::string_view format, std::string& error) {
    Json doc = Json::parse(text, nullptr, false);
    if (doc.is_discarded() || !doc.is_object()) {
        error = "is not a JSON object";
        return nullptr;
    }
    Reader r(doc, "", error);
    std::string name;
    std::int64_t version = 0;
    r.text("format", name);
    r.number("version", 1, 1, version);
    if (error.empty() && name != format) r.wrong("format", fmt::format("\"{}\"", format));
    return doc;
}

Status finish(std::string error) {
    if (error.empty()) return {};
    return fail(Code::kInvalidRequest, "auth", std::move(error));
}

}  // namespace

std::string write_keys_json(const KeySnapshot::Content& content) {
    Json doc = {{"format", kKeysFormat}, {"version", 1}, {"hash_key", base64url(content.hash_key)}};
    Json keys = Json::array();
    for (const KeyRecord& key : content.keys) keys.push_back(key_json(key));
    doc["keys"] = std::move(keys);
    return doc.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string write_secrets_json(const KeySnapshot::Content& content) {
    Json secrets = Json::array();
    for (const TokenSecret& secret : content.token_secrets)
        secrets.push_back({{"id", secret.id},
                           {"secret", base64url(secret.bytes)},
                           {"created", format_rfc3339(secret.created_ns)},
                           {"retires", time_or_null(secret.retires_ns)}});
    const Json doc = {{"format", kSecretsFormat}, {"version", 1}, {"secrets", std::move(secrets)}};
    return doc.dump(2) + "\n";
}

Status read_keys_json(std::string_view text, KeySnapshot::Content& content) {
    std::string error;
    const Json doc = open_document(text, kKeysFormat, error);
    if (!error.empty()) return finish(std::move(error));
    Reader r(doc, "", error);
    r.bytes("hash_key", content.hash_key);
    const Json* keys = r.member("keys");
    if (keys != nullptr && (!keys->is_array() || keys->size() > kMaxKeys))
        r.wrong("keys", fmt::format("an array of at most {}", kMaxKeys));
    if (!error.empty()) return finish(std::move(error));
    std::set<std::string> ids;
    std::set<Digest> digests;
    for (std::size_t i = 0; i < keys->size() && error.empty(); ++i) {
        const std::string where = fmt::format("keys[{}]", i);
        KeyRecord key;
        read_key((*keys)[i], where, key, error);
        if (error.empty() && !ids.insert(key.id).second)
            error = fmt::format("{}.id \"{}\" occurs twice", where, key.id);
        for (const KeySecret& secret : key.secrets)
            if (error.empty() && !digests.insert(secret.digest).second)
                error = where + ": this secret occurs twice";
        content.keys.push_back(std::move(key));
    }
    return finish(std::move(error));
}

Status read_secrets_json(std::string_view text, KeySnapshot::Content& content) {
    std::string error;
    const Json doc = open_document(text, kSecretsFormat, error);
    if (!error.empty()) return finish(std::move(error));
    Reader r(doc, "", error);
    const Json* secrets = r.member("secrets");
    if (secrets != nullptr && (!secrets->is_array() || secrets->size() > 64))
        r.wrong("secrets", "an array of at most 64");
    std::size_t current = 0;
    for (std::size_t i = 0; error.empty() && i < secrets->size(); ++i) {
        const std::string where = fmt::format("secrets[{}]", i);
        Reader item((*secrets)[i], where, error);
        TokenSecret secret;
        item.text("id", secret.id);
        item.bytes("secret", secret.bytes);
        item.time("created", false, secret.created_ns);
        item.time("retires", true, secret.retires_ns);
        if (error.empty() && !valid_name(secret.id)) item.wrong("id", "a name");
        current += secret.retires_ns == 0 ? 1 : 0;
        content.token_secrets.push_back(std::move(secret));
    }
    if (error.empty() && current > 1) error = "secrets: more than one has no \"retires\"";
    return finish(std::move(error));
}

}  // namespace zerohop::auth
