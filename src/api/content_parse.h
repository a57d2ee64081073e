// Content blocks and messages: JSON -> the text parts and turns of a Request (wire-contract §3.3,
// §3.4).
//
// Internal to api. One ContentParser per request; it counts cache breakpoints across system and
// messages, so call it in prompt order: system first. Threads: the exchange's I/O thread.
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

    explicit ContentParser(Version version) : version_(version) {}

    // Top-level `system`: a string or text blocks. Appends a system turn unless it is empty.
    Status system(Json value, const Path& path, std::vector<Turn>& turns);

    // `messages`: merges consecutive roles, keeps mid-conversation system turns in place.
    Status messages(Json value, const Path& path, std::vector<Turn>& turns);

    // A `cache_control` member, on a block or at the top level. Counts breakpoints.
    Status cache_control(const Field& field, const Path& owner);

  private:
    Status message(Json value, const Path& path, std::vector<Turn>& turns);
    Status content(Json value, const Path& path, Role role, std::vector<std::string>& parts);
    Status block(Json value, const Path& path, Role role, std::vector<std::string>& parts);
    Status text_block(simdjson::dom::object object, const Path& path, Role role,
                      std::vector<std::string>& parts);
    Status citations(const Field& field, const Path& owner, Role role);

    Version version_;
    int breakpoints_ = 0;
    bool short_seen_ = false;  // a 5-minute breakpoint: no 1-hour one may follow
};

}  // namespace zerohop::api
