// Templates: tagged text -> messages. docs/formats/skeleton.md §9.
//
// The scanner reads the whole text once with its tags; the top-level elements named after roles are
// the messages. Everything between tags inside a role stays as written, with entities decoded.
#include <optional>

#include "base/ascii.h"
#include "skeleton/skeleton.h"

namespace zerohop::skeleton {
namespace {

std::optional<Role> role_of(std::string_view name) {
    if (name == "system") return Role::kSystem;
    if (name == "user") return Role::kUser;
    if (name == "assistant") return Role::kAssistant;
    return std::nullopt;
}

void append_utf8(std::string& out, std::uint32_t c) {
    if (c < 0x80) {
        out += static_cast<char>(c);
    } else if (c < 0x800) {
        out += static_cast<char>(0xC0 | (c >> 6));
        out += static_cast<char>(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        out += static_cast<char>(0xE0 | (c >> 12));
        out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
        out += static_cast<char>(0x80 | (c & 0x3F));
    } else {
        out += static_cast<char>(0xF0 | (c >> 18));
        out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
        out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
        out += static_cast<char>(0x80 | (c & 0x3F));
    }
}

// The character an entity names, and its length; no value when it is none (then it is text).
std::optional<std::uint32_t> entity(std::string_view s, std::size_t& size) {
    static constexpr struct {
        std::string_view text;
        char c;
    } kNamed[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    for (const auto& named : kNamed)
        if (s.starts_with(named.text)) {
            size = named.text.size();
            return static_cast<std::uint32_t>(named.c);
        }
    if (!s.starts_with("&#")) return std::nullopt;
    std::size_t i = 2;
    const bool hex = i < s.size() && s[i] == 'x';
    i += hex ? 1 : 0;
    const std::size_t first = i;
    std::uint32_t value = 0;
    for (; i < s.size() && i < first + 8; ++i) {
        const char c = s[i];
        const char low = static_cast<char>(c | 0x20);
        if (c >= '0' && c <= '9')
            value = value * (hex ? 16 : 10) + static_cast<std::uint32_t>(c - '0');
        else if (hex && low >= 'a' && low <= 'f')
            value = value * 16 + static_cast<std::uint32_t>(low - 'a' + 10);
        else
            break;
    }
    const bool legal = i > first && i < s.size() && s[i] == ';' && value != 0 &&
                       value <= 0x10FFFF && !(value >= 0xD800 && value <= 0xDFFF);
    if (!legal) return std::nullopt;
    size = i + 1;
    return value;
}

std::string decoded(std::string_view s) {
    std::string out;
    out.reserve(s.size());
    for (std::size_t i = 0; i < s.size();) {
        std::size_t size = 0;
        if (s[i] == '&')
            if (const auto c = entity(s.substr(i), size)) {
                append_utf8(out, *c);
                i += size;
                continue;
            }
        out += s[i++];
    }
    return out;
}

}  // namespace

Template parse_template(std::string_view text, bool strict, Arena& arena) {
    Template out;
    const Analysis a = analyze_text(text, arena, {.strict = strict, .template_text = true});
    out.errors.assign(a.errors.begin(), a.errors.end());
    const auto outside = [&](std::size_t begin, std::size_t end) {
        while (begin < end && is_space(text[begin])) ++begin;
        while (end > begin && is_space(text[end - 1])) --end;
        if (begin == end) return;
        const auto at = static_cast<std::uint32_t>(begin);
        if (strict)
            out.errors.push_back({Problem::kTextOutsideRoles, 0, at});
        else
            out.messages.push_back({Role::kUser, decoded(text.substr(begin, end - begin)), at});
    };
    std::size_t seen = 0;
    std::uint32_t role_end = 0;
    // Node 0 is USER, the block's own; its children follow.
    for (std::size_t i = 1; i < a.nodes.size(); ++i) {
        const Node& n = a.nodes[i];
        if (n.kind != Kind::kTag) continue;
        const auto role = role_of(text.substr(n.name, n.name_size));
        if (!role) continue;
        if (n.begin < role_end) {
            if (strict) out.errors.push_back({Problem::kRoleInsideRole, 0, n.begin});
            continue;
        }
        outside(seen, n.begin);
        const std::string_view content =
            text.substr(n.content_begin, n.content_end - n.content_begin);
        out.messages.push_back({*role, decoded(content), n.content_begin});
        seen = role_end = n.end;
    }
    outside(seen, text.size());
    return out;
}

}  // namespace zerohop::skeleton
