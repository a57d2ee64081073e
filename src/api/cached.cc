#include "api/cached.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "api/json_text.h"
#include "api/messages_render.h"

namespace zerohop::api {
namespace {

void append_entry(std::string& out, const ServedModel& model, std::size_t place,
                  const CacheEntry& entry, MonoNs now, WallNs wall) {
    out += fmt::format(R"({{"id":"{}-{}","model":)", place, entry.id);
    append_json_string(out, model.id);
    out += R"(,"workspace":)";
    append_json_string(out, entry.workspace);
    out += fmt::format(R"(,"tokens":{},"blocks":{},"hits":{},"running":{},"tier":"{}")",
                       entry.tokens, blocks_of(entry.tokens), entry.hits, entry.running,
                       entry.in_host_memory ? "host" : "kv");
    out += R"(,"pinned_until":)";
    append_expiry(out, entry.pinned_until > now ? entry.pinned_until : 0, now, wall);
    out += '}';
}

struct EntryId {
    std::size_t model = 0;
    std::uint64_t entry = 0;
};

bool parse_id(std::string_view text, EntryId& out) {
    const char* const begin = text.data();
    const char* const end = begin + text.size();
    const auto model = std::from_chars(begin, end, out.model);
    if (model.ec != std::errc{} || model.ptr == end || *model.ptr != '-') return false;
    const auto entry = std::from_chars(model.ptr + 1, end, out.entry);
    return entry.ec == std::errc{} && entry.ptr == end && out.entry != 0;
}

std::string deleted(std::size_t entries) { return fmt::format(R"({{"deleted":{}}})", entries); }

std::string forget_all(const Catalog& catalog, const std::string& owner, Admission& who) {
    std::int64_t count = 0;
    for (const ServedModel& model : catalog.models()) {
        if (!who.may_use(model.id)) continue;
        if (const auto list = model.engine->cached_approx())
            count += std::ranges::count(*list, owner, &CacheEntry::workspace);
        model.engine->forget_cached(owner, 0);
    }
    who.forget_prompts();
    return deleted(static_cast<std::size_t>(count));
}

}  // namespace

std::string list_cached(const Catalog& catalog, const Principal& principal, const Admission& who,
                        MonoNs now, WallNs wall) {
    std::string out = R"({"object":"list","data":[)";
    std::size_t entries = 0;
    std::int64_t tokens = 0, blocks = 0, pinned = 0, host_tokens = 0;
    for (std::size_t place = 0; place < catalog.models().size(); ++place) {
        const ServedModel& model = catalog.models()[place];
        if (!who.may_use(model.id)) continue;
        const auto list = model.engine->cached_approx();
        if (!list) continue;
        for (const CacheEntry& entry : *list) {
            if (!principal.admin && entry.workspace != principal.cache_owner()) continue;
            tokens += entry.tokens;
            blocks += blocks_of(entry.tokens);
            pinned += entry.pinned_until > now ? 1 : 0;
            host_tokens += entry.in_host_memory ? entry.tokens : 0;
            if (entries++ >= kMaxListedEntries) continue;
            if (entries > 1) out += ',';
            append_entry(out, model, place, entry, now, wall);
        }
    }
    out += fmt::format(R"(],"has_more":{},"totals":{{"entries":{},"tokens":{},"blocks":{},)"
                       R"("pinned":{},"host_tokens":{}}}}})",
                       entries > kMaxListedEntries, entries, tokens, blocks, pinned, host_tokens);
    return out;
}

Result<std::string> delete_cached(const Catalog& catalog, const Principal& principal,
                                  Admission& who, std::string_view raw_id) {
    if (raw_id.empty()) return forget_all(catalog, principal.cache_owner(), who);
    EntryId id;
    if (parse_id(raw_id, id) && id.model < catalog.models().size() &&
        who.may_use(catalog.models()[id.model].id)) {
        EnginePort& engine = *catalog.models()[id.model].engine;
        if (const auto list = engine.cached_approx()) {
            const auto entry = std::ranges::find(*list, id.entry, &CacheEntry::id);
            if (entry != list->end() &&
                (principal.admin || entry->workspace == principal.cache_owner())) {
                engine.forget_cached(entry->workspace, id.entry);
                return deleted(1);
            }
        }
    }
    // The same words whether it is somebody else's or nobody's.
    return fail(Code::kNotFound, "api",
                "cache: no entry " + in_quotes(raw_id) + "; GET /v1/cache lists them");
}

}  // namespace zerohop::api
