#include "api/models.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "api/json_text.h"
#include "api/url.h"
#include "base/rfc3339.h"

namespace zerohop::api {
namespace {

constexpr std::size_t kMaxLimit = 1000;

constexpr std::string_view kCapabilities =
    R"({"batch":{"supported":false},"citations":{"supported":false})"
    R"(,"code_execution":{"supported":false})"
    R"(,"context_management":{"supported":false,"clear_thinking_20251015":null)"
    R"(,"clear_tool_uses_20250919":null,"compact_20260112":null})"
    R"(,"effort":{"supported":false,"low":{"supported":false},"medium":{"supported":false})"
    R"(,"high":{"supported":false},"max":{"supported":false},"xhigh":null})"
    R"(,"image_input":{"supported":false},"pdf_input":{"supported":false})"
    R"(,"server_tools":{"supported":false,"web_search":{"supported":false})"
    R"(,"code_execution":{"supported":false}})"
    R"(,"structured_outputs":{"supported":false})"
    R"(,"thinking":{"supported":false,"types":{"adaptive":{"supported":false})"
    R"(,"between_tools":{"supported":false},"disabled":{"supported":true})"
    R"(,"enabled":{"supported":false}}})";  // its end follows

void append_model(std::string& out, const ServedModel& model) {
    const ModelInfo& info = model.engine->info();
    out += R"({"type":"model","object":"model","id":)";
    append_json_string(out, model.id);
    out += R"(,"display_name":)";
    append_json_string(out, info.display_name.empty() ? model.id : info.display_name);
    out += R"(,"created_at":)";
    append_json_string(out, format_rfc3339(info.created_ns));
    out += R"(,"created":)";
    append_int(out, info.created_ns / kNsPerSec);
    out += R"(,"owned_by":"zerohop","lifecycle":"active","deprecated_at":null,"retires_at":null)"
           R"(,"line":null,"max_input_tokens":)";
    append_int(out, info.context_tokens);
    out += R"(,"max_tokens":)";
    append_int(out, std::min(info.context_tokens, max_output_limit(model)));
    out += R"(,"capabilities":)";
    out += kCapabilities;
    // Recurrent models cannot go back to a prefix.
    out += R"(,"prompt_caching":{"supported":)";
    out += info.can_share_prefix ? "true}}}" : "false}}}";
}

struct ListQuery {
    std::size_t limit = 0;
    std::optional<std::string> after_id;
    std::optional<std::string> before_id;
    bool wants_active = true;
};

std::unexpected<Error> bad_query(std::string_view name, std::string_view message) {
    return fail(Code::kInvalidRequest, "api", std::string(name) + ": " + std::string(message));
}

Result<std::size_t> parse_limit(std::string_view text) {
    std::size_t limit = 0;
    const auto end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, limit);
    if (result.ec != std::errc{} || result.ptr != end || limit < 1 || limit > kMaxLimit)
        return bad_query("limit", "must be an integer from 1 to " + std::to_string(kMaxLimit));
    return limit;
}

Result<ListQuery> parse_list_query(std::string_view raw, std::size_t default_limit) {
    const auto pairs = parse_query(raw);
    if (!pairs) return bad_query("query", "malformed percent-encoding or too many parameters");
    ListQuery query{.limit = default_limit};
    bool filtered = false;
    bool active = false;
    for (const auto& [key, value] : *pairs) {
        if (key == "limit") {
            const auto limit = parse_limit(value);
            if (!limit) return std::unexpected(limit.error());
            query.limit = *limit;
        } else if (key == "after_id") {
            query.after_id = value;
        } else if (key == "before_id") {
            query.before_id = value;
        } else if (key == "lifecycle[]" || key == "lifecycle") {
            if (value != "active" && value != "deprecated" && value != "retired")
                return bad_query("lifecycle", "must be 'active', 'deprecated' or 'retired'; got " +
                                                  in_quotes(value));
            filtered = true;
            active = active || value == "active";
        }
    }
    query.wants_active = !filtered || active;
    if (query.after_id && query.before_id)
        return bad_query("before_id", "give either after_id or before_id, not both");
    return query;
}

struct Page {
    std::size_t begin = 0;
    std::size_t end = 0;
    bool has_more = false;
};

// after_id: the models that follow it; before_id: those just ahead of it, in the same order.
Result<Page> find_page(const std::vector<const ServedModel*>& models, const ListQuery& query) {
    const std::size_t count = query.wants_active ? models.size() : 0;
    const bool backwards = query.before_id.has_value();
    const auto& cursor = backwards ? query.before_id : query.after_id;
    std::optional<std::size_t> place;
    if (cursor) {
        const auto it =
            std::ranges::find(models, *cursor, [](const ServedModel* m) { return m->id; });
        if (it != models.end()) place = static_cast<std::size_t>(it - models.begin());
        if (!place)
            return bad_query(backwards ? "before_id" : "after_id",
                             "no model has the id " + in_quotes(*cursor));
    }
    Page page;
    if (backwards) {
        page.end = std::min(*place, count);
        page.begin = page.end - std::min(query.limit, page.end);
        page.has_more = page.begin > 0;
    } else {
        page.begin = std::min(place ? *place + 1 : 0, count);
        page.end = page.begin + std::min(query.limit, count - page.begin);
        page.has_more = page.end < count;
    }
    return page;
}

}  // namespace

Result<std::string> list_models(const Catalog& catalog, std::string_view raw_query,
                                std::size_t default_limit, const Admission& who) {
    const auto query = parse_list_query(raw_query, default_limit);
    if (!query) return std::unexpected(query.error());
    std::vector<const ServedModel*> models;
    for (const ServedModel& model : catalog.models())
        if (who.may_use(model.id)) models.push_back(&model);
    const auto page = find_page(models, *query);
    if (!page) return std::unexpected(page.error());
    std::string out = R"({"object":"list","data":[)";
    for (std::size_t i = page->begin; i < page->end; ++i) {
        if (i > page->begin) out += ',';
        append_model(out, *models[i]);
    }
    out +=
        page->has_more ? R"(],"has_more":true,"first_id":)" : R"(],"has_more":false,"first_id":)";
    const bool empty = page->begin == page->end;
    if (empty) {
        out += R"(null,"last_id":null})";
        return out;
    }
    append_json_string(out, models[page->begin]->id);
    out += R"(,"last_id":)";
    append_json_string(out, models[page->end - 1]->id);
    out += '}';
    return out;
}

Result<std::string> get_model(const Catalog& catalog, std::string_view raw_id,
                              const Admission& who) {
    const auto id = percent_decode(raw_id);
    if (!id) return fail(Code::kInvalidRequest, "api", "path: malformed percent-encoding");
    const ServedModel* model = catalog.find(*id);
    if (model == nullptr || !who.may_use(model->id))
        return fail(Code::kNotFound, "api",
                    "model: " + in_quotes(*id) + " is not served here; served: " +
                        catalog.names([&who](std::string_view m) { return who.may_use(m); }));
    std::string out;
    append_model(out, *model);
    return out;
}

}  // namespace zerohop::api
