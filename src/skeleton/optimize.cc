#include "skeleton/optimize.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ascii.h"
#include "skeleton/skeleton.h"

namespace zerohop::skeleton {
namespace {

constexpr std::string_view kRuleNames[kRules] = {
    "merge-text", "unwrap-doubled", "drop-empty", "placeholders", "role-tags", "constant-first"};

bool blank(std::string_view s) { return std::all_of(s.begin(), s.end(), is_space); }
std::string_view excerpt(std::string_view s) {
    s = trim(s);
    std::size_t n = std::min<std::size_t>(s.find_first_of("\r\n"), 48);
    while (n < s.size() && n > 0 && (static_cast<unsigned char>(s[n]) & 0xC0) == 0x80) --n;
    return s.substr(0, n);
}

class Optimizer {
  public:
    Optimizer(std::string_view text, const OptimizeOptions& options) : options_(options) {
        out_.text = text;
        out_.complexity_before = complexity();
        out_.reusable_before = reusable_prefix(text);
    }

    Optimized run() {
        // Each step changes offsets, so the tree is read anew after it. Every change removes
        // something, so this ends; the bound is for texts of thousands of changes.
        if (on(Rule::kRoleTags)) role_tags();
        for (int i = 0; i < 10000 && structure_step(); ++i) {
        }
        if (on(Rule::kPlaceholders)) placeholders();
        if (on(Rule::kConstantFirst)) constant_first();
        out_.complexity_after = complexity();
        out_.reusable_after = reusable_prefix(out_.text);
        return std::move(out_);
    }

  private:
    bool on(Rule rule) const { return (options_.off & (1U << static_cast<unsigned>(rule))) == 0; }
    Analysis read() { return analyze_text(out_.text, arena_, {.template_text = true}); }
    // Of the messages the template stands for.
    int complexity() {
        const Template t = parse_template(out_.text, false, arena_);
        std::vector<Block> blocks;
        std::vector<Message> messages;
        blocks.reserve(t.messages.size());
        for (const TemplateMessage& m : t.messages) {
            blocks.push_back({.text = m.text});
            messages.push_back({m.role, {&blocks.back(), 1}});
        }
        return analyze({0, messages}, arena_).complexity;
    }
    void changed(Rule rule, std::size_t at, std::string what) {
        out_.changes.push_back({rule, place_of(out_.text, at).line, std::move(what)});
    }
    std::string_view name(const Node& n) const {
        return std::string_view(out_.text).substr(n.name, n.name_size);
    }
    std::string_view content(const Node& n) const {
        return std::string_view(out_.text).substr(n.content_begin, n.content_end - n.content_begin);
    }
    // Opening tags with attributes differ by them: such elements are left alone.
    bool plain(const Node& n) const { return n.content_begin - n.begin == n.name_size + 2; }
    static bool closed_tag(const Node& n) { return n.kind == Kind::kTag && n.content_end < n.end; }

    bool structure_step() {
        const Analysis a = read();
        for (std::size_t i = 1; i < a.nodes.size(); ++i) {
            const Node& n = a.nodes[i];
            if (!closed_tag(n) || !plain(n)) continue;
            if (on(Rule::kDropEmpty) && n.next == i + 1 && blank(content(n)) && !is_role(name(n))) {
                changed(Rule::kDropEmpty, n.begin,
                        fmt::format("<{}></{}> removed", name(n), name(n)));
                std::size_t end = n.end;  // and the line it leaves empty
                if ((n.begin == 0 || out_.text[n.begin - 1] == '\n') && end < out_.text.size() &&
                    out_.text[end] == '\n')
                    ++end;
                out_.text.erase(n.begin, end - n.begin);
                return true;
            }
            if (on(Rule::kUnwrapDoubled) && i + 1 < n.next && unwrap(n, a.nodes[i + 1]))
                return true;
            if (on(Rule::kMergeText) && n.next < a.nodes.size() && merge(a, i)) return true;
        }
        return false;
    }
    static bool is_role(std::string_view tag) {
        return tag == "system" || tag == "user" || tag == "assistant";
    }
    bool unwrap(const Node& outer, const Node& inner) {
        if (!closed_tag(inner) || !plain(inner) || name(outer) != name(inner) ||
            is_role(name(outer)))
            return false;
        const std::string_view text(out_.text);
        if (!blank(text.substr(outer.content_begin, inner.begin - outer.content_begin)) ||
            !blank(text.substr(inner.end, outer.content_end - inner.end)))
            return false;
        changed(Rule::kUnwrapDoubled, outer.begin,
                fmt::format("doubled <{}> unwrapped", name(outer)));
        out_.text.replace(outer.begin, outer.end - outer.begin,
                          std::string(text.substr(inner.begin, inner.end - inner.begin)));
        return true;
    }
    bool merge(const Analysis& a, std::size_t i) {
        const Node& n = a.nodes[i];
        const Node& next = a.nodes[n.next];
        const std::string_view tag = name(n);
        if (tag != "text" && tag != "p" && tag != "span") return false;
        const auto text_only = [&](std::size_t k) {
            for (std::size_t j = k + 1; j < a.nodes[k].next; ++j)
                if (a.nodes[j].kind != Kind::kText) return false;
            return true;
        };
        if (!closed_tag(next) || !plain(next) || name(next) != tag || next.begin < n.end ||
            !text_only(i) || !text_only(n.next) ||
            !blank(std::string_view(out_.text).substr(n.end, next.begin - n.end)))
            return false;
        changed(Rule::kMergeText, n.begin, fmt::format("two <{}> merged", tag));
        out_.text.erase(n.content_end, next.content_begin - n.content_end);
        return true;
    }

    void placeholders() {
        const Analysis a = read();
        std::string out;
        std::size_t from = 0;
        std::vector<Change> changes;
        for (const Volatile& v : a.volatiles) {
            const std::string_view value = std::string_view(out_.text).substr(v.offset, v.size);
            changed(Rule::kPlaceholders, v.offset,
                    fmt::format("{} -> <{}/>", value, name_of(v.kind)));
            out.append(out_.text, from, v.offset - from);
            out += fmt::format("<{}/>", name_of(v.kind));
            from = v.offset + v.size;
        }
        if (from == 0) return;
        out.append(out_.text, from);
        out_.text = std::move(out);
    }

    void role_tags() {
        for (const auto& [from, to] : options_.role_rules)
            for (std::size_t at = out_.text.find(from); at != std::string::npos;
                 at = out_.text.find(from, at + to.size())) {
                changed(Rule::kRoleTags, at, fmt::format("\"{}\" -> {}", excerpt(from), to));
                out_.text.replace(at, from.size(), to);
            }
    }

    // --- constant first -------------------------------------------------------------------------
    struct Range {
        std::size_t begin;
        std::size_t end;
    };
    void constant_first() {
        const Analysis a = read();
        std::vector<Range> roles;
        std::vector<Range> atoms;  // closed elements and code: never cut
        for (std::size_t i = 1; i < a.nodes.size(); ++i) {
            const Node& n = a.nodes[i];
            if (n.kind == Kind::kTag && is_role(name(n)) &&
                (roles.empty() || n.begin >= roles.back().end))
                roles.push_back({n.content_begin, n.content_end});
            else if (n.kind == Kind::kTag || n.kind == Kind::kCodeBlock || n.kind == Kind::kAnchor)
                if (atoms.empty() || n.begin >= atoms.back().end) atoms.push_back({n.begin, n.end});
        }
        if (roles.empty()) roles.push_back({0, out_.text.size()});
        // From the last to the first, so that offsets before stay true.
        for (std::size_t i = roles.size(); i-- > 0;) reorder(roles[i], atoms);
    }
    void reorder(Range role, const std::vector<Range>& atoms) {
        std::vector<Range> parts = sections(role, atoms);
        const auto variable = [&](Range r) {
            const std::string_view s = std::string_view(out_.text).substr(r.begin, r.end - r.begin);
            return reusable_prefix(s) < s.size();
        };
        const auto first = std::find_if(parts.begin(), parts.end(), variable);
        if (first == parts.end()) return;
        if (std::all_of(first, parts.end(), variable)) return;  // already in order
        for (auto it = first; it != parts.end(); ++it)
            if (refers(std::string_view(out_.text).substr(it->begin, it->end - it->begin))) {
                out_.notes.push_back(fmt::format(
                    "constant-first: line {} refers to what stands around it; left in place",
                    place_of(out_.text, it->begin).line));
                return;
            }
        for (auto it = first; it != parts.end(); ++it)
            if (!variable(*it))
                changed(Rule::kConstantFirst, it->begin,
                        fmt::format("\"{}\" moved before the variable parts",
                                    excerpt(std::string_view(out_.text).substr(
                                        it->begin, it->end - it->begin))));
        std::vector<Range> ordered;  // two passes keep the order within each half
        for (const bool last : {false, true})
            for (const Range& r : parts)
                if (variable(r) == last) ordered.push_back(r);
        std::string out;
        for (const Range& r : ordered) {
            if (!out.empty()) out += "\n\n";
            out += trim(std::string_view(out_.text).substr(r.begin, r.end - r.begin));
        }
        const std::string_view whole =
            std::string_view(out_.text).substr(role.begin, role.end - role.begin);
        const std::size_t lead = static_cast<std::size_t>(trim(whole).data() - whole.data());
        out_.text.replace(role.begin + lead, trim(whole).size(), out);
    }
    // Paragraphs (blank lines part them, outside of atoms); a heading keeps all up to the next one.
    std::vector<Range> sections(Range role, const std::vector<Range>& atoms) const {
        std::vector<Range> parts;
        const std::string_view text(out_.text);
        const auto inside = [&](std::size_t at) {
            const auto it =
                std::upper_bound(atoms.begin(), atoms.end(), at,
                                 [](std::size_t x, const Range& r) { return x < r.begin; });
            return it != atoms.begin() && at < std::prev(it)->end;
        };
        std::size_t begin = role.begin;
        bool under_heading = false;
        const auto add = [&](std::size_t end) {
            if (!blank(text.substr(begin, end - begin))) {
                const bool heading = trim(text.substr(begin, end - begin)).starts_with('#');
                if (under_heading && !heading)
                    parts.back().end = end;
                else
                    parts.push_back({begin, end});
                under_heading = under_heading || heading;
            }
            begin = end;
        };
        for (std::size_t at = role.begin; at < role.end; ++at) {
            if (text[at] != '\n' || inside(at)) continue;
            std::size_t e = at + 1;
            while (e < role.end && (text[e] == ' ' || text[e] == '\t' || text[e] == '\r')) ++e;
            const bool gap = e < role.end && text[e] == '\n';
            // An element that ends a line and one that begins one part there too.
            const bool ends = at > 0 && text[at - 1] == '>' && inside(at - 1);
            const bool starts = e < role.end && text[e] == '<' && inside(e);
            if (gap || ends || starts) add(at + 1);
        }
        add(role.end);
        return parts;
    }
    static bool refers(std::string_view s) {
        std::string low(s);
        for (char& c : low) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
        for (const std::string_view word : {"above", "below", "following", "previous", "preceding",
                                            "earlier in this", "next section"})
            if (low.find(word) != std::string::npos) return true;
        return false;
    }

    const OptimizeOptions& options_;
    Optimized out_;
    Arena arena_;
};

}  // namespace

std::string_view name_of(Rule rule) { return kRuleNames[static_cast<std::size_t>(rule)]; }

std::pair<std::size_t, std::size_t> next_variable(std::string_view text, std::size_t from) {
    const auto word = [](char c, bool first) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
               (!first && ((c >= '0' && c <= '9') || c == '.'));
    };
    for (std::size_t at = text.find('{', from); at != std::string_view::npos;
         at = text.find('{', at + 1)) {
        const bool two = text.substr(at, 2) == "{{";
        std::size_t b = at + (two ? 2 : 1);
        while (b < text.size() && text[b] == ' ') ++b;
        std::size_t e = b;
        while (e < text.size() && word(text[e], e == b)) ++e;
        std::size_t end = e;
        while (end < text.size() && text[end] == ' ') ++end;
        if (e == b || text.substr(end, two ? 2 : 1) != (two ? "}}" : "}")) continue;
        end += two ? 2 : 1;
        const std::size_t begin = at > from && text[at - 1] == '$' ? at - 1 : at;
        return {begin, end - begin};
    }
    return {std::string_view::npos, 0};
}

std::size_t reusable_prefix(std::string_view text) {
    Arena arena;
    const Analysis a = analyze_text(text, arena);
    const std::size_t fixed = a.volatiles.empty() ? text.size() : a.volatiles[0].offset;
    return std::min(fixed, next_variable(text, 0).first);
}

Optimized optimize(std::string_view text, const OptimizeOptions& options) {
    return Optimizer(text, options).run();
}

std::vector<std::pair<std::string, std::string>> parse_role_rules(std::string_view file,
                                                                  std::vector<std::string>& bad) {
    std::vector<std::pair<std::string, std::string>> rules;
    for (std::size_t at = 0; at < file.size();) {
        const std::size_t end = std::min(file.size(), file.find('\n', at));
        const std::string_view line = trim(file.substr(at, end - at));
        at = end + 1;
        if (line.empty() || line[0] == '#') continue;
        const std::size_t arrow = line.find("=>");
        const std::string_view from = trim(line.substr(0, std::min(arrow, line.size())));
        const std::string_view to =
            arrow == std::string_view::npos ? "" : trim(line.substr(arrow + 2));
        if (from.empty() || to.empty())
            bad.emplace_back(line);
        else
            rules.emplace_back(from, to);
    }
    return rules;
}

}  // namespace zerohop::skeleton
