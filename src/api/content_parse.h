// Content blocks and messages: JSON -> the text parts and turns of a Request (wire-contract §3.3,
// §3.4).
//
// Internal to api. One ContentParser per request; it places cache breakpoints across system and
// messages, so call it in prompt order: system first. Threads: any, one per parser.
// Fails with kInvalidRequest naming the field; linear in the size of the document.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/json_fields.h"
#include "api/version.h"
#include "request/request.h"

namespace zerohop::api {

class ContentParser {
  public:
    static constexpr std::size_t kMaxMessages = 100'000;
    static constexpr int kMaxBreakpoints = 4;

    // Turns and breakpoints of `request` are appended to; it outlives the parser.
    ContentParser(Version version, Request& request)
        : version_(version), turns_(request.turns), breakpoints_(request.breakpoints) {}

    // Top-level `system`: a string or text blocks. Appends a system turn unless it is empty.
    Status system(Json value, const Path& path);

    // `messages`: merges consecutive roles, keeps mid-conversation system turns in place.
    Status messages(Json value, const Path& path);

    // A `cache_control` member, on a block or at the top level: a breakpoint behind what was read.
    Status cache_control(const Field& field, const Path& owner);

  private:
    // The content of turns_.back().
    // user_follows: some later message is the user's.
    Status message(Json value, const Path& path, std::size_t first_turn, bool user_follows);
    static Result<bool> is_cleared(const Field& clear_at, const Path& owner, bool user_follows);
    Status content(Json value, const Path& path, Role role);
    Status block(Json value, const Path& path, Role role);
    Status text_block(simdjson::dom::object object, const Path& path, Role role);
    Status citations(const Field& field, const Path& owner, Role role);

    Version version_;
    std::vector<Turn>& turns_;
    std::vector<CacheBreakpoint>& breakpoints_;
    int breakpoint_count_ = 0;
    bool short_seen_ = false;  // a 5-minute breakpoint: no 1-hour one may follow
};

}  // namespace zerohop::api
