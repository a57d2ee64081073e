#include "api/content_parse.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/cache_request.h"
#include "api/json_text.h"

namespace zerohop::api {
namespace {

using simdjson::dom::object;

// Block types of the API that this server does not take yet (or ever: server tools, newer betas).
constexpr std::string_view kUnsupportedBlocks[] = {"tool_use",
                                                   "tool_result",
                                                   "image",
                                                   "document",
                                                   "search_result",
                                                   "server_tool_use",
                                                   "web_search_tool_result",
                                                   "web_fetch_tool_result",
                                                   "code_execution_tool_result",
                                                   "bash_code_execution_tool_result",
                                                   "text_editor_code_execution_tool_result",
                                                   "tool_search_tool_result",
                                                   "tool_reference",
                                                   "mcp_tool_use",
                                                   "mcp_tool_result",
                                                   "container_upload",
                                                   "tool_addition",
                                                   "tool_removal",
                                                   "compaction",
                                                   "fallback"};

// Reasoning of an earlier turn. It is checked for shape and dropped: a model without reasoning
// never saw it, and templates of reasoning models leave out that of earlier turns too.
Status dropped_block(object block, const Path& path, bool redacted) {
    constexpr std::string_view kThinking[] = {"type", "thinking", "signature"};
    constexpr std::string_view kRedacted[] = {"type", "data"};
    Field fields[3];
    const std::span<const std::string_view> names =
        redacted ? std::span<const std::string_view>(kRedacted)
                 : std::span<const std::string_view>(kThinking);
    if (auto ok = read_fields(block, path, names, fields); !ok) return ok;
    for (std::size_t i = 1; i < names.size(); ++i) {
        const Path at(path, names[i]);
        if (!fields[i]) return bad_field(at, "field required");
        if (auto text = want_string(*fields[i], at); !text) return std::unexpected(text.error());
    }
    return {};
}

// Its index; 0 without any.
std::size_t last_user_message(simdjson::dom::array list) {
    std::size_t last = 0, i = 0;
    for (const Json item : list) {
        std::string_view role;
        if (item["role"].get_string().get(role) == simdjson::SUCCESS && role == "user") last = i;
        ++i;
    }
    return last;
}

}  // namespace

Status ContentParser::cache_control(const Field& field, const Path& owner) {
    if (!present(field)) return {};
    const Path path(owner, "cache_control");
    const auto value = want_object(*field, path);
    if (!value) return std::unexpected(value.error());
    constexpr std::string_view kNames[] = {"type", "ttl"};
    constexpr std::string_view kTypes[] = {"ephemeral"};
    constexpr std::string_view kTtls[] = {"5m", "1h"};
    Field fields[2];
    // A hint: what else clients tell in it (scope …) means nothing here.
    if (auto ok = read_fields(*value, path, kNames, fields, Unknown::kIgnored); !ok) return ok;
    if (!fields[0]) return bad_field(Path(path, "type"), "field required");
    if (auto type = want_one_of(*fields[0], Path(path, "type"), kTypes); !type)
        return std::unexpected(type.error());
    bool one_hour = false;
    if (present(fields[1])) {
        const auto ttl = want_one_of(*fields[1], Path(path, "ttl"), kTtls);
        if (!ttl) return std::unexpected(ttl.error());
        one_hour = *ttl == "1h";
    }
    if (++breakpoint_count_ > kMaxBreakpoints)
        return bad_field(
            path, fmt::format("a request may have at most {} cache breakpoints", kMaxBreakpoints));
    if (one_hour && short_seen_)
        return bad_field(path, "a breakpoint with ttl '1h' must not come after one with ttl '5m'");
    short_seen_ = short_seen_ || !one_hour;
    place_breakpoint(turns_, one_hour ? kLongTtl : kShortTtl, breakpoints_);
    return {};
}

Status ContentParser::citations(const Field& field, const Path& owner, Role role) {
    if (!present(field)) return {};
    const Path path(owner, "citations");
    const auto list = want_array(*field, path);
    if (!list) return std::unexpected(list.error());
    if (role != Role::kAssistant && version_ == Version::k2026_10_21 &&
        list->begin() != list->end())
        return bad_field(path, fmt::format("not accepted on {} text under anthropic-version {}",
                                           name_of(role), version_name(version_)));
    return {};
}

Status ContentParser::text_block(object block, const Path& path, Role role) {
    constexpr std::string_view kNames[] = {"type", "text", "citations", "cache_control"};
    Field fields[4];
    if (auto ok = read_fields(block, path, kNames, fields); !ok) return ok;
    const Path at(path, "text");
    if (!fields[1]) return bad_field(at, "field required");
    const auto text = want_string(*fields[1], at);
    if (!text) return std::unexpected(text.error());
    if (auto ok = citations(fields[2], path, role); !ok) return ok;
    if (!text->empty()) {
        turns_.back().parts.emplace_back(*text);
    } else if (role != Role::kAssistant) {  // an answer may be empty, and clients echo it
        return bad_field(at, "must not be empty");
    }
    return cache_control(fields[3], path);
}

Status ContentParser::block(Json value, const Path& path, Role role) {
    const auto block = want_object(value, path);
    if (!block) return std::unexpected(block.error());
    const Path type_path(path, "type");
    Json type_value;
    if (block->at_key("type").get(type_value) != simdjson::SUCCESS)
        return bad_field(type_path, "field required");
    const auto type = want_string(type_value, type_path);
    if (!type) return std::unexpected(type.error());
    if (*type == "text") return text_block(*block, path, role);
    if (role == Role::kSystem)
        return bad_field(
            path, fmt::format("system content takes text blocks only, not {}", in_quotes(*type)));
    if (*type == "thinking" || *type == "redacted_thinking") {
        if (role != Role::kAssistant)
            return bad_field(
                path, fmt::format("{} blocks belong in assistant messages", in_quotes(*type)));
        return dropped_block(*block, path, *type == "redacted_thinking");
    }
    if (*type == "document" && role == Role::kAssistant && version_ == Version::k2026_10_21)
        return bad_field(path, fmt::format("document blocks are not accepted in assistant messages "
                                           "under anthropic-version {}",
                                           version_name(version_)));
    if (std::ranges::find(kUnsupportedBlocks, *type) != std::end(kUnsupportedBlocks))
        return bad_field(path, fmt::format("{} blocks are not supported yet", in_quotes(*type)));
    return bad_field(type_path, fmt::format("unknown block type {}", in_quotes(*type)));
}

Status ContentParser::content(Json value, const Path& path, Role role) {
    if (value.is_string()) {
        const auto text = want_string(value, path);
        if (!text) return std::unexpected(text.error());
        if (!text->empty()) {
            turns_.back().parts.emplace_back(*text);
        } else if (role != Role::kAssistant) {
            return bad_field(path, "must not be empty");
        }
        return {};
    }
    if (!value.is_array()) return bad_field(path, "must be a string or an array of content blocks");
    const auto blocks = want_array(value, path);
    if (!blocks) return std::unexpected(blocks.error());
    std::size_t i = 0;
    for (const Json item : *blocks)
        if (auto ok = block(item, Path(path, i++), role); !ok) return ok;
    if (i == 0 && role != Role::kAssistant) return bad_field(path, "must not be empty");
    return {};
}

Status ContentParser::system(Json value, const Path& path) {
    const bool nothing = (value.is_string() && want_string(value, path).value().empty()) ||
                         (value.is_array() && want_array(value, path)->size() == 0);
    if (nothing) return {};
    turns_.push_back({.role = Role::kSystem, .parts = {}});
    return content(value, path, Role::kSystem);
}

// How long a system message stays in front of the model: with "next_user_message" it is gone once a
// user message follows it.
Result<bool> ContentParser::is_cleared(const Field& clear_at, const Path& owner,
                                       bool user_follows) {
    if (!present(clear_at)) return false;
    constexpr std::string_view kTimes[] = {"never", "next_user_message"};
    const auto when = want_one_of(*clear_at, Path(owner, "clear_at"), kTimes);
    if (!when) return std::unexpected(when.error());
    return *when == "next_user_message" && user_follows;
}

Status ContentParser::message(Json value, const Path& path, std::size_t first_turn,
                              bool user_follows) {
    const auto message = want_object(value, path);
    if (!message) return std::unexpected(message.error());
    constexpr std::string_view kNames[] = {"role", "content", "output_config", "clear_at"};
    constexpr std::string_view kRoles[] = {"user", "assistant", "system"};
    Field fields[4];
    if (auto ok = read_fields(*message, path, kNames, fields); !ok) return ok;
    // A system message may be there for its output_config alone: how much effort, a hint.
    const bool has_config = present(fields[2]);
    for (std::size_t i = 0; i < 2; ++i)
        if (!fields[i] && !(i == 1 && has_config))
            return bad_field(Path(path, kNames[i]), "field required");
    const auto name = want_one_of(*fields[0], Path(path, "role"), kRoles);
    if (!name) return std::unexpected(name.error());
    const Role role = *name == "user"        ? Role::kUser
                      : *name == "assistant" ? Role::kAssistant
                                             : Role::kSystem;
    for (std::size_t i = 2; i < 4; ++i)
        if (fields[i] && role != Role::kSystem)
            return bad_field(Path(path, kNames[i]), "only on system messages");
    if (has_config)
        if (auto config = want_object(*fields[2], Path(path, kNames[2])); !config)
            return std::unexpected(config.error());
    const auto cleared = is_cleared(fields[3], path, user_follows);
    if (!cleared) return std::unexpected(cleared.error());
    if (*cleared || !fields[1]) return {};
    if (turns_.size() == first_turn || turns_.back().role != role)
        turns_.push_back({.role = role, .parts = {}});
    return content(*fields[1], Path(path, "content"), role);
}

Status ContentParser::messages(Json value, const Path& path) {
    const auto list = want_array(value, path);
    if (!list) return std::unexpected(list.error());
    const std::size_t first_turn = turns_.size();
    const std::size_t last_user = last_user_message(*list);
    std::size_t i = 0;
    for (const Json item : *list) {
        if (i == kMaxMessages)
            return bad_field(path, fmt::format("at most {} messages", kMaxMessages));
        const Path at(path, i++);
        if (auto ok = message(item, at, first_turn, i <= last_user); !ok) return ok;
        const bool user = turns_.size() > first_turn && turns_.back().role == Role::kUser;
        if (i == 1 && !user)
            return bad_field(
                Path(at, "role"),
                turns_.size() == first_turn || turns_.back().role == Role::kSystem
                    ? "the first message must be from 'user'; text for the system goes "
                      "into the top-level 'system' field"
                    : "the first message must be from 'user'");
    }
    if (i == 0) return bad_field(path, "at least one message is required");
    return {};
}

}  // namespace zerohop::api
