// The body of POST /v1/messages, /v1/messages/count_tokens and /v1/cache/warmup -> one Request
// (wire-contract §3). A warm-up takes what messages take, most of it left out; or tagged text.
//
// Every field is implemented, accepted and ignored, or refused with a 400 that names it by path;
// nothing is skipped unread. Deterministic, linear in the body, never throws.
// Threads: any (one simdjson parser per thread). The result owns all its text; the body may go.
// Fails with kInvalidRequest, or kNotFound for an unknown model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "api/body.h"
#include "api/catalog.h"
#include "api/version.h"
#include "base/error.h"
#include "request/request.h"

namespace zerohop::api {

enum class Endpoint : std::uint8_t { kMessages, kCountTokens, kWarmUp };

struct ParseOptions {
    Version version = Version::k2026_10_21;
    SamplingParams sampling = SamplingParams::kAccept;
    Endpoint endpoint = Endpoint::kMessages;
    const Catalog* catalog = nullptr;
    std::string hinted_model = {};  // of the head; a warm-up's body need not name it again
    // The models that an error may name; empty: all.
    std::function<std::string()> known_models = {};
};

struct ParsedMessages {
    Request request;  // ids, principal and times are the caller's to fill in
    const ServedModel* model = nullptr;
    bool stream = false;
    bool context_management = false;  // asked for: the answer says which edits were applied (none)
    std::string user_id;              // metadata.user_id, "" when absent
    MonoNs warm_up_ttl_ns = 0;        // warm-ups: how long the prompt is to be kept
};

// Bounds of one request; docs/limits.md.
inline constexpr std::size_t kMaxJsonDepth = 128;
inline constexpr std::size_t kMaxStopSequences = 256;  // of OutputText::kMaxStopBytes in all

// `json` must be followed by Body::kPadding readable bytes. source: whose bytes it is; it gives its
// memory back as soon as they are read; may be null.
Result<ParsedMessages> parse_messages(std::string_view json, const ParseOptions& options,
                                      Body* source = nullptr);

// What parsing needs for a moment beyond a copy of the text, at most, in bytes.
std::size_t parse_scratch_bytes(std::string_view json);

}  // namespace zerohop::api
