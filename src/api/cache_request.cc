#include "api/cache_request.h"

#include <algorithm>
#include <utility>

#include "skeleton/skeleton.h"

namespace zerohop::api {
namespace {

// Bytes at the beginning of `line` (without its end) that mean nothing to a model: all of it,
// unless it is a list of attributes ("name=value;" …) behind which something else was joined on.
std::size_t volatile_part(std::string_view line, std::span<const std::string> prefixes) {
    const auto prefix = std::ranges::find_if(prefixes, [&](const std::string& candidate) {
        return !candidate.empty() && line.starts_with(candidate);
    });
    if (prefix == prefixes.end()) return 0;
    constexpr std::string_view kSpace = " \t";
    std::size_t own = prefix->size();
    for (bool first = true;; first = false) {
        const std::size_t begin = std::min(line.find_first_not_of(kSpace, own), line.size());
        const std::size_t end = std::min(line.find_first_of("; \t", begin), line.size());
        const bool attribute = line.substr(begin, end - begin).find('=') != std::string_view::npos;
        const bool closed = end < line.size() && line[end] == ';';
        if (end == line.size() && attribute) return line.size();
        if (!closed || (!attribute && !first))
            return first || begin == line.size() ? line.size() : own;
        own = end + 1;
    }
}

// What is left of `text`; counts the lines that lost their beginning or all.
std::string without_lines(std::string_view text, std::span<const std::string> prefixes,
                          std::uint32_t& dropped) {
    std::string out;
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        const std::string_view whole =
            text.substr(0, line.size() + 1);  // with its end, if it has one
        const std::size_t part = volatile_part(line, prefixes);
        if (part < line.size() || part == 0) out += whole.substr(part);
        dropped += part > 0 ? 1U : 0U;
        text.remove_prefix(whole.size());
    }
    return out;
}

// Whether without_lines() would change it.
bool has_lines(std::string_view text, std::span<const std::string> prefixes) {
    for (;;) {
        if (volatile_part(text.substr(0, text.find('\n')), prefixes) > 0) return true;
        const std::size_t end = text.find('\n');
        if (end == std::string_view::npos) return false;
        text.remove_prefix(end + 1);
    }
}

Role role_of(skeleton::Role role) {
    if (role == skeleton::Role::kSystem) return Role::kSystem;
    return role == skeleton::Role::kAssistant ? Role::kAssistant : Role::kUser;
}

}  // namespace

void place_breakpoint(const std::vector<Turn>& turns, MonoNs ttl_ns,
                      std::vector<CacheBreakpoint>& out) {
    for (std::size_t turn = turns.size(); turn-- > 0;) {
        const std::size_t parts = turns[turn].parts.size();
        if (parts == 0) continue;
        const CacheBreakpoint here{.turn = static_cast<std::uint32_t>(turn),
                                   .part = static_cast<std::uint32_t>(parts - 1),
                                   .ttl_ns = ttl_ns};
        if (!out.empty() && out.back().turn == here.turn && out.back().part == here.part)
            out.back().ttl_ns = std::max(out.back().ttl_ns, ttl_ns);
        else
            out.push_back(here);
        return;
    }
}

std::uint32_t drop_lines(Request& request, std::span<const std::string> prefixes) {
    const auto to_change = [&](const Turn& turn) {
        return turn.role == Role::kSystem &&
               std::ranges::any_of(
                   turn.parts, [&](const std::string& part) { return has_lines(part, prefixes); });
    };
    if (prefixes.empty() || std::ranges::none_of(request.turns, to_change)) return 0;
    std::uint32_t dropped = 0;

    // Built anew in order, so that every breakpoint finds its place among what is left.
    std::vector<Turn> turns;
    std::vector<CacheBreakpoint> breakpoints;
    auto next = request.breakpoints.begin();
    for (std::size_t t = 0; t < request.turns.size(); ++t) {
        Turn& turn = request.turns[t];
        bool opened = false;
        for (std::size_t p = 0; p < turn.parts.size(); ++p) {
            std::string text = turn.role == Role::kSystem
                                   ? without_lines(turn.parts[p], prefixes, dropped)
                                   : std::move(turn.parts[p]);
            if (!text.empty()) {
                // A turn that vanished may have stood between two of one role.
                if (!opened && (turns.empty() || turns.back().role != turn.role))
                    turns.push_back({.role = turn.role, .parts = {}});
                opened = true;
                turns.back().parts.push_back(std::move(text));
            }
            for (; next != request.breakpoints.end() && next->turn == t && next->part == p; ++next)
                place_breakpoint(turns, next->ttl_ns, breakpoints);
        }
        if (turn.parts.empty()) turns.push_back(std::move(turn));  // an empty answer, echoed
    }
    request.turns = std::move(turns);
    request.breakpoints = std::move(breakpoints);
    return dropped;
}

Status append_tagged(std::string_view text, std::vector<Turn>& turns) {
    skeleton::Arena arena;
    const std::size_t before = turns.size();
    for (skeleton::TemplateMessage& message :
         skeleton::parse_template(text, false, arena).messages) {
        if (message.text.empty()) continue;  // a last, empty <assistant> only asks for an answer
        const Role role = role_of(message.role);
        if (turns.empty() || turns.back().role != role)
            turns.push_back({.role = role, .parts = {}});
        turns.back().parts.push_back(std::move(message.text));
    }
    if (turns.size() > before) return {};
    return fail(Code::kInvalidRequest, "api", "prompt: must not be empty");
}

Status make_warm_up(Request& request, MonoNs ttl_ns) {
    request.max_tokens = 0;
    request.max_total_tokens = 0;
    request.breakpoints.clear();
    place_breakpoint(request.turns, ttl_ns, request.breakpoints);
    if (!request.breakpoints.empty()) return {};
    return fail(
        Code::kInvalidRequest, "api",
        "nothing to warm up: give system, messages or prompt some text that is not dropped");
}

bool add_user_turn(Request& request) {
    const auto is_user = [](const Turn& turn) { return turn.role == Role::kUser; };
    if (std::ranges::any_of(request.turns, is_user)) return false;
    request.turns.push_back({.role = Role::kUser, .parts = {""}});
    return true;
}

}  // namespace zerohop::api
