#include "api/cache_request.h"

#include <algorithm>
#include <utility>

#include "skeleton/skeleton.h"

namespace zerohop::api {
namespace {

bool is_volatile(std::string_view line, std::span<const std::string> prefixes) {
    return std::ranges::any_of(prefixes, [&](const std::string& prefix) {
        return !prefix.empty() && line.starts_with(prefix);
    });
}

std::uint32_t count_lines(std::string_view text, std::span<const std::string> prefixes) {
    std::uint32_t count = 0;
    for (;;) {
        count += is_volatile(text, prefixes) ? 1U : 0U;
        const std::size_t end = text.find('\n');
        if (end == std::string_view::npos) return count;
        text.remove_prefix(end + 1);
    }
}

std::string without_lines(std::string_view text, std::span<const std::string> prefixes) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        const std::string_view line = text.substr(0, end == text.npos ? end : end + 1);
        if (!is_volatile(line, prefixes)) out += line;
        text.remove_prefix(line.size());
    }
    return out;
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
    std::uint32_t dropped = 0;
    if (!prefixes.empty())
        for (const Turn& turn : request.turns)
            if (turn.role == Role::kSystem)
                for (const std::string& part : turn.parts) dropped += count_lines(part, prefixes);
    if (dropped == 0) return 0;

    // Built anew in order, so that every breakpoint finds its place among what is left.
    std::vector<Turn> turns;
    std::vector<CacheBreakpoint> breakpoints;
    auto next = request.breakpoints.begin();
    for (std::size_t t = 0; t < request.turns.size(); ++t) {
        Turn& turn = request.turns[t];
        bool opened = false;
        for (std::size_t p = 0; p < turn.parts.size(); ++p) {
            std::string text = turn.role == Role::kSystem ? without_lines(turn.parts[p], prefixes)
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
