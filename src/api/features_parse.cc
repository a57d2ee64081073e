#include "api/features_parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "api/json_text.h"

namespace zerohop::api {
namespace {

constexpr std::int64_t kAnyInt = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMinThinkingBudget = 1024;

Status members_of(Json value, const Path& path, std::span<const std::string_view> names,
                  std::span<Field> out) {
    const auto object = want_object(value, path);
    if (!object) return std::unexpected(object.error());
    return read_fields(*object, path, names, out);
}

// The same for an object whose first member, `type`, is required.
Status typed_members_of(Json value, const Path& path, std::span<const std::string_view> names,
                        std::span<Field> out) {
    if (auto ok = members_of(value, path, names, out); !ok) return ok;
    if (!out[0]) return bad_field(Path(path, "type"), "field required");
    return {};
}

// The type of a server- or client-run predefined tool; "" for a custom one.
Result<std::string_view> predefined_type(Json item, const Path& path) {
    const auto tool = want_object(item, path);
    if (!tool) return std::unexpected(tool.error());
    Json type;
    if (tool->at_key("type").get(type) != simdjson::SUCCESS || type.is_null()) return "";
    const auto name = want_string(type, Path(path, "type"));
    return name && *name == "custom" ? Result<std::string_view>("") : name;
}

Status check_budget(const Field& budget, const Path& thinking,
                    std::optional<std::int64_t> max_tokens, std::string_view model) {
    const Path path(thinking, "budget_tokens");
    if (!budget) return bad_field(path, "field required");
    const auto value = want_int(*budget, path, kMinThinkingBudget, kAnyInt);
    if (!value) return std::unexpected(value.error());
    if (max_tokens && *value >= *max_tokens)
        return bad_field(path,
                         fmt::format("{} must be below max_tokens ({})", *value, *max_tokens));
    return bad_field(Path(thinking, "type"),
                     fmt::format("model {} does not support 'enabled' thinking yet; use 'adaptive' "
                                 "or 'disabled'",
                                 in_quotes(model)));
}

}  // namespace

Status check_tools(Json value, const Path& path) {
    const auto list = want_array(value, path);
    if (!list) return std::unexpected(list.error());
    std::size_t i = 0;
    for (const Json item : *list) {
        const Path at_tool(path, i++);
        const auto type = predefined_type(item, at_tool);
        if (!type) return std::unexpected(type.error());
        if (!type->empty())
            return bad_field(Path(at_tool, "type"), in_quotes(*type) + " is not supported");
    }
    if (i > 0) return bad_field(path, "tool use is not supported yet");
    return {};
}

Status check_tool_choice(Json value, const Path& path) {
    constexpr std::string_view kMembers[] = {"type", "name", "disable_parallel_tool_use"};
    constexpr std::string_view kTypes[] = {"auto", "any", "tool", "none"};
    Field member[3];
    if (auto ok = typed_members_of(value, path, kMembers, member); !ok) return ok;
    const auto type = want_one_of(*member[0], Path(path, "type"), kTypes);
    if (!type) return std::unexpected(type.error());
    if (present(member[2]))
        if (auto flag = want_bool(*member[2], Path(path, kMembers[2])); !flag)
            return std::unexpected(flag.error());
    if (*type == "any" || *type == "tool")
        return bad_field(Path(path, "type"),
                         in_quotes(*type) + " needs tools, and tool use is not supported yet");
    if (member[1]) return bad_field(Path(path, "name"), "only with type 'tool'");
    return {};
}

Status check_thinking(Json value, const Path& path, std::optional<std::int64_t> max_tokens,
                      std::string_view model) {
    constexpr std::string_view kMembers[] = {"type", "budget_tokens", "display"};
    constexpr std::string_view kTypes[] = {"disabled", "enabled", "adaptive", "between_tools"};
    Field member[3];
    if (auto ok = typed_members_of(value, path, kMembers, member); !ok) return ok;
    const auto type = want_one_of(*member[0], Path(path, "type"), kTypes);
    if (!type) return std::unexpected(type.error());
    if (present(member[2]))
        if (auto display = want_string(*member[2], Path(path, "display")); !display)
            return std::unexpected(display.error());
    if (*type == "enabled") return check_budget(member[1], path, max_tokens, model);
    if (member[1]) return bad_field(Path(path, "budget_tokens"), "only with type 'enabled'");
    if (*type == "between_tools")
        return bad_field(Path(path, "type"), "'between_tools' is not supported yet");
    return {};  // disabled, adaptive: nothing to switch on in a model without reasoning
}

Status check_output_config(const Field& config, const Field& format_alias, const Path& root) {
    const Path path(root, "output_config");
    const Path alias_path(root, "output_format");
    Field member[3];
    if (present(config)) {
        constexpr std::string_view kMembers[] = {"effort", "format", "task_budget"};
        constexpr std::string_view kEfforts[] = {"low", "medium", "high", "xhigh", "max"};
        if (auto ok = members_of(*config, path, kMembers, member); !ok) return ok;
        if (present(member[0]))
            if (auto effort = want_one_of(*member[0], Path(path, "effort"), kEfforts); !effort)
                return std::unexpected(effort.error());
        if (present(member[2]))  // advice to the model about its whole session
            if (auto budget = want_object(*member[2], Path(path, "task_budget")); !budget)
                return std::unexpected(budget.error());
    }
    if (present(member[1]) && present(format_alias))
        return bad_field(alias_path, "give either output_format or output_config.format, not both");
    constexpr std::string_view kNotYet = "structured output is not supported yet";
    if (present(member[1])) return bad_field(Path(path, "format"), kNotYet);
    if (present(format_alias)) return bad_field(alias_path, kNotYet);
    return {};
}

Result<std::string> parse_metadata(Json value, const Path& path) {
    constexpr std::string_view kMembers[] = {"user_id"};
    Field user[1];
    if (auto ok = members_of(value, path, kMembers, user); !ok) return std::unexpected(ok.error());
    if (!present(user[0])) return std::string();
    const Path at_id(path, "user_id");
    const auto id = want_string(*user[0], at_id);
    if (!id) return std::unexpected(id.error());
    const auto characters = std::ranges::count_if(
        *id, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
    if (characters > kMaxUserIdCharacters)
        return bad_field(at_id,
                         fmt::format("must have at most {} characters", kMaxUserIdCharacters));
    return std::string(*id);
}

Status check_diagnostics(Json value, const Path& path) {
    constexpr std::string_view kMembers[] = {"previous_message_id"};
    Field previous[1];
    if (auto ok = members_of(value, path, kMembers, previous); !ok) return ok;
    if (present(previous[0]))
        if (auto id = want_string(*previous[0], Path(path, kMembers[0])); !id)
            return std::unexpected(id.error());
    return {};
}

// Edits that only clear old content are no-ops here: the client still sends what it sends, and the
// answer says that none was applied.
Status check_context_management(Json value, const Path& path) {
    constexpr std::string_view kMembers[] = {"edits"};
    Field edits[1];
    if (auto ok = members_of(value, path, kMembers, edits); !ok) return ok;
    if (!present(edits[0])) return {};
    const Path at_edits(path, "edits");
    const auto list = want_array(*edits[0], at_edits);
    if (!list) return std::unexpected(list.error());
    std::size_t i = 0;
    for (const Json item : *list) {
        const Path at_edit(at_edits, i++);
        const auto edit = want_object(item, at_edit);
        if (!edit) return std::unexpected(edit.error());
        const Path at_type(at_edit, "type");
        Json type;
        if (edit->at_key("type").get(type) != simdjson::SUCCESS)
            return bad_field(at_type, "field required");
        const auto name = want_string(type, at_type);
        if (!name) return std::unexpected(name.error());
        if (!name->starts_with("clear_"))
            return bad_field(at_type, in_quotes(*name) + " is not supported");
    }
    return {};
}

}  // namespace zerohop::api
