#include "admit/token_endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "admit/hints.h"

namespace zerohop::admit {
namespace {

using Json = nlohmann::ordered_json;

std::unexpected<Error> invalid(std::string text) {
    return fail(Code::kInvalidRequest, "admit", std::move(text));
}

Status read_models(const Json& value, TokenWish& out) {
    if (!value.is_array() || value.empty() || value.size() > 64)
        return invalid("model_scope: must be an array of 1 to 64 model names");
    std::vector<std::string> models;
    for (const Json& item : value) {
        if (!item.is_string() || item.get_ref<const std::string&>().empty())
            return invalid(fmt::format("model_scope.{}: must be a model name", models.size()));
        models.push_back(item.get_ref<const std::string&>());
    }
    out.models = std::move(models);
    return {};
}

Status read_quota(const Json& value, TokenWish& out) {
    if (!value.is_object()) return invalid("rate_limit_quota: must be an object");
    auth::Limits quota;
    for (const auto& [name, number] : value.items()) {
        std::int64_t* slot = name == "requests"        ? &quota.requests
                             : name == "input_tokens"  ? &quota.input_tokens
                             : name == "output_tokens" ? &quota.output_tokens
                                                       : nullptr;
        if (slot == nullptr)
            return invalid(
                fmt::format("rate_limit_quota.{}: unknown; known are requests, "
                            "input_tokens and output_tokens",
                            printable(name)));
        const bool whole = number.is_number_unsigned();
        const std::uint64_t n = whole ? number.get<std::uint64_t>() : 0;
        if (!whole || n == 0 || n > static_cast<std::uint64_t>(auth::kMaxLimit))
            return invalid(fmt::format("rate_limit_quota.{}: must be a whole number from 1 to {}",
                                       name, auth::kMaxLimit));
        *slot = static_cast<std::int64_t>(n);
    }
    out.quota = quota;
    return {};
}

Status read_member(const std::string& name, const Json& value, TokenWish& out) {
    if (name == "model_scope") return read_models(value, out);
    if (name == "rate_limit_quota") return read_quota(value, out);
    if (name != "region_hint")
        return invalid(fmt::format(
            "{}: unknown field; known are model_scope, region_hint and rate_limit_quota",
            printable(name)));
    if (!value.is_string() || !auth::valid_name(value.get_ref<const std::string&>()))
        return invalid("region_hint: must be the name of a region");
    out.region = value.get_ref<const std::string&>();
    return {};
}

// Notes the first name that one object has twice: the parser keeps the last, a reader may mean the
// first. Names of the objects that are open, outermost first.
Json::parser_callback_t repeated_members(std::string& found) {
    return [&found, open = std::vector<std::set<std::string>>()](int, Json::parse_event_t event,
                                                                 Json& value) mutable {
        if (event == Json::parse_event_t::object_start) open.emplace_back();
        if (event == Json::parse_event_t::object_end) open.pop_back();
        if (event == Json::parse_event_t::key) {
            const auto& name = value.get_ref<const std::string&>();
            if (!open.back().insert(name).second && found.empty()) found = printable(name);
        }
        return true;
    };
}

// 0 is "no limit": the tighter of two.
std::int64_t tighter(std::int64_t key, std::int64_t wanted) {
    if (key == 0) return wanted;
    return wanted == 0 ? key : std::min(key, wanted);
}

void add_once(std::vector<std::string>& names, const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

// All that the key may use; what is not served here may be elsewhere, where the secrets are shared.
std::vector<std::string> models_of_key(const HeadAdmission& who) {
    std::vector<std::string> out;
    for (const std::string& name : who.key()->models) {
        const Model* model = name == "*" ? nullptr : who.topology().find_named(name);
        add_once(out, model == nullptr ? name : model->id);
    }
    return out;
}

// Ids in the claims, whatever aliases were asked for.
Result<std::vector<std::string>> narrow_models(const HeadAdmission& who, const TokenWish& wish) {
    if (!wish.models) return models_of_key(who);
    std::vector<std::string> out;
    for (const std::string& name : *wish.models) {
        if (name == "*") return models_of_key(who);
        const Model* model = who.topology().find_model(name);
        if (model == nullptr)
            return fail(
                Code::kNotFound, "admit",
                fmt::format("model_scope: model \"{}\" is not served here", printable(name)));
        if (!who.may_use(model->id))
            return fail(Code::kPermission, "admit",
                        fmt::format("model_scope: key {} may not use model \"{}\"", who.key()->id,
                                    model->id));
        add_once(out, model->id);
    }
    return out;
}

Result<std::string> narrow_region(const Topology& topology, const TokenWish& wish) {
    if (!wish.region) return std::string();  // anywhere: hosts may share their secrets
    if (topology.is_here(*wish.region)) return topology.config().region;
    if (const Region* region = topology.find_region(*wish.region)) return region->name;
    return invalid(fmt::format("region_hint: region \"{}\" is not known here", *wish.region));
}

}  // namespace

Result<TokenWish> parse_token_wish(std::string_view body) {
    TokenWish wish;
    if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) return wish;
    if (body.size() > 65'536) return invalid("the body is longer than 64 KiB");
    // The parser recurses: a body of brackets must not reach its depth.
    if (std::count_if(body.begin(), body.end(), [](char c) { return c == '[' || c == '{'; }) > 64)
        return invalid("the body is nested too deeply");
    std::string repeated;
    const Json doc = Json::parse(body, repeated_members(repeated), false);
    if (doc.is_discarded() || !doc.is_object()) return invalid("the body is not a JSON object");
    if (!repeated.empty()) return invalid(repeated + ": given twice");
    for (const auto& [name, value] : doc.items()) {
        if (value.is_null()) continue;
        if (Status s = read_member(name, value, wish); !s) return std::unexpected(s.error());
    }
    return wish;
}

Result<IssuedToken> issue_token(const HeadAdmission& who, const TokenWish& wish, WallNs now) {
    const auth::KeyRecord* key = who.key();
    if (key == nullptr)
        return invalid("this server uses no keys, so it issues no tokens (zerohop key create)");
    if (who.by_token())
        return fail(Code::kPermission, "admit",
                    "a token cannot get another token: use the API key");
    auto models = narrow_models(who, wish);
    if (!models) return std::unexpected(models.error());
    auto region = narrow_region(who.topology(), wish);
    if (!region) return std::unexpected(region.error());
    const auth::Limits quota = wish.quota.value_or(auth::Limits{});
    IssuedToken issued;
    issued.claims = {
        .token_id = auth::random_id(12),
        .key_id = key->id,
        .generation = key->generation,
        .issued_ns = now / kNsPerSec * kNsPerSec,
        .expires_ns = (now / kNsPerSec + auth::kTokenLifetimeS) * kNsPerSec,
        .models = std::move(*models),
        .region = std::move(*region),
        .quota = {.requests = tighter(key->limits.requests, quota.requests),
                  .input_tokens = tighter(key->limits.input_tokens, quota.input_tokens),
                  .output_tokens = tighter(key->limits.output_tokens, quota.output_tokens)}};
    auto token = auth::mint_token(who.keys(), issued.claims);
    if (!token) return std::unexpected(token.error());
    issued.token = std::move(*token);
    return issued;
}

std::string token_json(const IssuedToken& issued) {
    const auth::TokenClaims& claims = issued.claims;
    Json quota = Json::object();
    if (claims.quota.requests != 0) quota["requests"] = claims.quota.requests;
    if (claims.quota.input_tokens != 0) quota["input_tokens"] = claims.quota.input_tokens;
    if (claims.quota.output_tokens != 0) quota["output_tokens"] = claims.quota.output_tokens;
    const Json doc = {
        {"access_token", issued.token},
        {"token_type", "Bearer"},
        {"expires_in", auth::kTokenLifetimeS},
        {"expires_at", claims.expires_ns / kNsPerSec},
        {"claims",
         {{"model_scope", claims.models},
          {"region_hint", claims.region.empty() ? Json(nullptr) : Json(claims.region)},
          {"rate_limit_quota", std::move(quota)}}}};
    return doc.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<std::string> answer_token_request(const HeadAdmission& who, std::string_view body,
                                         WallNs now) {
    const auto wish = parse_token_wish(body);
    if (!wish) return std::unexpected(wish.error());
    const auto issued = issue_token(who, *wish, now);
    if (!issued) return std::unexpected(issued.error());
    return token_json(*issued);
}

}  // namespace zerohop::admit
