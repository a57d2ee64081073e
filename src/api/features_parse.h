// The object-valued fields of a request that switch a capability on: checked for shape, accepted
// while they ask for nothing this server lacks, otherwise refused by path (wire-contract §3.5–3.8).
//
// Internal to api's parser (shows simdjson). Threads: any; pure functions. Fail with
// kInvalidRequest.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "api/json_fields.h"

namespace zerohop::api {

inline constexpr std::ptrdiff_t kMaxUserIdCharacters = 256;

Status check_tools(Json value, const Path& path);
Status check_tool_choice(Json value, const Path& path);

// max_tokens: of the same request, absent for count_tokens. model: for the message.
Status check_thinking(Json value, const Path& path, std::optional<std::int64_t> max_tokens,
                      std::string_view model);

// `output_config` and its deprecated alias for the format, `output_format`, both under root.
Status check_output_config(const Field& config, const Field& format_alias, const Path& root);

// metadata.user_id, "" when absent.
Result<std::string> parse_metadata(Json value, const Path& path);

Status check_diagnostics(Json value, const Path& path);
Status check_context_management(Json value, const Path& path);

}  // namespace zerohop::api
