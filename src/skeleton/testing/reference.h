// The slow, plain reading of docs/formats/skeleton.md, for tests alone: byte by byte, with a real
// tree, strings and recursion. The fast scanner must agree with it on every input
// (skeleton_fuzz.cc).
//
// It shares with the library what is a table or a definition of its own rather than a way of
// scanning: language tags and detection (languages.h) and what one word with a digit is
// (volatile_match.h). Nothing fails.
#pragma once

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "skeleton/languages.h"
#include "skeleton/skeleton.h"
#include "skeleton/testing/reference_code.h"
#include "skeleton/volatile_match.h"

namespace zerohop::skeleton::reference {

struct Node {
    std::string label;  // as printed, without its count; "" for a dissolved tag
    std::string merge;  // leaves with the same non-empty value merge when adjacent
    std::uint32_t count = 0;
    bool counted = false;  // print ":count" always (lists, tables)
    bool run = false;      // text and quotes: one per block
    int block = 0;
    bool leaf = false;
    bool dissolved = false;
    std::string name;  // tags
    std::vector<std::unique_ptr<Node>> children;
};
using NodePtr = std::unique_ptr<Node>;

struct Result {
    std::string canonical;
    std::vector<Volatile> volatiles;
    std::array<std::uint64_t, kProblems> errors{};
    int complexity = 0;
};

inline std::string escape(std::string_view s, bool upper) {
    std::string out;
    for (char c : s) {
        const auto u = static_cast<unsigned char>(c);
        if (upper && c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
        if (u >= 128 ||
            std::string_view("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.+#")
                    .find(c) != std::string_view::npos) {
            out += c;
        } else {
            static constexpr char kDigits[] = "0123456789abcdef";
            out += '%';
            out += kDigits[u / 16];
            out += kDigits[u % 16];
        }
    }
    return out;
}

// One JSON value by recursive descent; the shape it has, or no value.
class Json {
  public:
    Json(std::string_view text, std::size_t at) : t_(text), p_(at) {}
    bool parse(std::string& shape) { return value(shape, true, 0); }
    std::size_t at() const { return p_; }

  private:
    bool space() {
        while (p_ < t_.size() &&
               std::string_view(" \t\n\r\f\v").find(t_[p_]) != std::string_view::npos)
            ++p_;
        return p_ < t_.size();
    }
    bool string() {
        ++p_;
        for (; p_ < t_.size(); ++p_) {
            if (t_[p_] == '"') return ++p_, true;
            if (t_[p_] == '\n' || t_[p_] == '\r') return false;
            if (t_[p_] == '\\') ++p_;
        }
        p_ = t_.size();
        return false;
    }
    bool value(std::string& out, bool show, std::size_t depth) {
        if (!space()) return false;
        const char c = t_[p_];
        if (c == '{' || c == '[') return container(out, show, depth, c == '{');
        char type = 'n';
        if (c == '"') {
            if (!string()) return false;
            type = 's';
        } else if (t_.substr(p_, 4) == "true") {
            p_ += 4;
            type = 'b';
        } else if (t_.substr(p_, 5) == "false") {
            p_ += 5;
            type = 'b';
        } else if (t_.substr(p_, 4) == "null") {
            p_ += 4;
            type = 'z';
        } else {
            if (c != '-' && !(c >= '0' && c <= '9')) return false;
            ++p_;
            while (p_ < t_.size() &&
                   std::string_view("0123456789.eE+-").find(t_[p_]) != std::string_view::npos)
                ++p_;
        }
        if (show) out += type;
        return true;
    }
    bool container(std::string& out, bool show, std::size_t depth, bool object) {
        if (depth == 256) return false;
        const bool hidden = show && depth >= 32;
        if (hidden) out += '~';
        const bool mine = show && !hidden;
        if (mine) out += object ? '{' : '[';
        ++p_;
        if (!space()) return false;
        std::uint32_t count = 0;
        const char end = object ? '}' : ']';
        if (t_[p_] != end) {
            for (;;) {
                ++count;
                bool inner = mine && (object ? count <= 32 : count == 1);
                if (object) {
                    if (!space() || t_[p_] != '"') return false;
                    const std::size_t key = p_;
                    if (!string()) return false;
                    if (inner) {
                        if (count > 1) out += ',';
                        out += std::string(t_.substr(key, p_ - key)) + ":";
                    }
                    if (!space() || t_[p_] != ':') return false;
                    ++p_;
                }
                if (!value(out, inner, depth + 1)) return false;
                if (!space()) return false;
                if (t_[p_] == end) break;
                if (t_[p_] != ',') return false;
                ++p_;
            }
        }
        ++p_;
        if (mine) {
            if (!object && count > 0) out += "*" + std::to_string(step(count));
            if (object && count > 32) out += "+" + std::to_string(step(count));
            out += end;
        }
        return true;
    }
    std::string_view t_;
    std::size_t p_;
};

class Reader {
  public:
    explicit Reader(bool strict) : strict_(strict) {}

    Result read(const Prompt& prompt) {
        Node root;
        if (prompt.tools > 0) {
            Node* n = add(root, "TOOLS:" + std::to_string(step(prompt.tools)));
            n->leaf = true;
        }
        for (const Message& m : prompt.messages) {
            Node* role = add(root, m.role == Role::kSystem ? "SYSTEM"
                                   : m.role == Role::kUser ? "USER"
                                                           : "ASSISTANT");
            for (const Block& b : m.blocks) read_block(*role, b);
        }
        print(root, 0);
        result_.canonical.swap(out_);
        return std::move(result_);
    }

  private:
    static bool in(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }
    static bool name_start(char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
               static_cast<unsigned char>(c) >= 128;
    }
    static bool name_char(char c) {
        return name_start(c) || (c >= '0' && c <= '9') || in(c, "-.:");
    }
    void error(Problem p) { ++result_.errors[static_cast<std::size_t>(p)]; }
    char at(std::size_t i) const { return i < t_.size() ? t_[i] : '\0'; }
    bool has(std::size_t i) const { return i < t_.size(); }

    Node* add(Node& parent, std::string label) {
        parent.children.push_back(std::make_unique<Node>());
        parent.children.back()->label = std::move(label);
        parent.children.back()->block = block_;
        return parent.children.back().get();
    }
    Node* add_leaf(std::string label, std::string merge, std::uint32_t count = 1) {
        Node* n = add(*stack_.back(), std::move(label));
        n->leaf = true;
        n->merge = std::move(merge);
        n->count = count;
        n->run = n->merge == "TEXT" || n->merge == "QUOTE";
        fresh_ = true;
        return n;
    }
    // The last child, when nothing but it has come since (tags end it).
    Node* last() {
        return fresh_ && !stack_.back()->children.empty() ? stack_.back()->children.back().get()
                                                          : nullptr;
    }
    void text() {
        if (Node* n = last(); n == nullptr || n->merge != "TEXT") add_leaf("TEXT", "TEXT");
    }

    void read_block(Node& role, const Block& b) {
        t_ = b.kind == BlockKind::kImage ? std::string_view{} : b.text;
        stack_ = {&role};
        fresh_ = false;
        floor_ = 0;
        if (b.kind == BlockKind::kImage) add_leaf("IMAGE", "IMAGE");
        if (b.kind == BlockKind::kText) read_text();
        if (b.kind == BlockKind::kToolResult) {
            stack_ = {add(role, "TOOL_RESULT")};
            read_text();
        }
        if (b.kind == BlockKind::kToolUse) {
            stack_ = {add(role, "TOOL_USE:" + escape(b.name, false))};
            std::size_t p = 0;
            while (has(p) && in(t_[p], " \t\n\r\f\v")) ++p;
            if (has(p)) {
                std::string shape;
                Json json(t_, p);
                bool ok = json.parse(shape);
                for (std::size_t i = json.at(); ok && i < t_.size(); ++i)
                    ok = in(t_[i], " \t\n\r\f\v");
                if (ok)
                    add_leaf("JSON:" + shape, "JSON:" + shape);
                else
                    add_leaf("TEXT", "TEXT");
            }
        }
        bytes();
        ++block_;
    }

    void bytes() {
        bool valid = true;
        for (std::size_t i = 0; i < t_.size() && valid;) valid = character(i);
        if (!valid) error(Problem::kInvalidUtf8);
        for (const char c : t_)
            if (c == '\0') error(Problem::kNulByte);
        VolatileMatcher matcher(t_);
        const auto alnum = [](char c) {
            return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        };
        for (std::size_t i = 0; i < t_.size();) {
            std::size_t digit = i;
            while (digit < t_.size() && alnum(t_[digit]) && !(t_[digit] >= '0' && t_[digit] <= '9'))
                ++digit;
            if (digit >= t_.size()) break;
            if (!alnum(t_[digit])) {
                i = digit + 1;
                continue;
            }
            const VolatileMatch m = matcher.match(i, digit);
            if (m.found)
                result_.volatiles.push_back({m.kind, static_cast<std::uint32_t>(block_),
                                             static_cast<std::uint32_t>(m.begin),
                                             static_cast<std::uint32_t>(m.end - m.begin)});
            i = m.end;
        }
    }
    bool character(std::size_t& i) const {
        const auto c = static_cast<unsigned char>(t_[i]);
        std::uint32_t value = c;
        int more = 0;
        std::uint32_t least = 0;
        if (c >= 0x80) {
            if (c >= 0xC0 && c < 0xE0)
                value = c & 0x1F, more = 1, least = 0x80;
            else if (c >= 0xE0 && c < 0xF0)
                value = c & 0x0F, more = 2, least = 0x800;
            else if (c >= 0xF0 && c < 0xF8)
                value = c & 0x07, more = 3, least = 0x10000;
            else
                return false;
        }
        for (++i; more > 0; --more, ++i) {
            if (i >= t_.size() || (static_cast<unsigned char>(t_[i]) & 0xC0) != 0x80) return false;
            value = (value << 6) | (static_cast<unsigned char>(t_[i]) & 0x3F);
        }
        return value >= least && value <= 0x10FFFF && !(value >= 0xD800 && value <= 0xDFFF);
    }

    // --- text -----------------------------------------------------------------------------------
    void read_text() {
        base_ = stack_.size();
        if (may_be_code(t_)) {
            const Lang lang = detect_language(t_, true);
            if (lang != Lang::kPlain) return code(lang, "", 0, t_.size());
        }
        for (std::size_t p = 0; p < t_.size();) p = line(p);
        while (stack_.size() > base_) dissolve();
    }
    std::size_t line(std::size_t start) {
        std::size_t p = start;
        while (has(p) && in(t_[p], " \t")) ++p;
        if (!has(p)) return p;
        const char c = t_[p];
        if (in(c, "\n\r")) return p + 1;
        if (c == '<') {
            if (const std::size_t after = tag(p)) return after;
            text();
            return rest(p + 1, true);
        }
        if (c == '#') {
            std::size_t level = 0;
            while (at(p + level) == '#') ++level;
            if (level <= 6 && has(p + level) && in(t_[p + level], " \t")) {
                add_leaf("HEADING:" + std::to_string(level), "");
                return rest(p + level, false);
            }
            text();
            return rest(p, true);
        }
        if (in(c, "-*+") && has(p + 1) && in(t_[p + 1], " \t")) return item(p + 2, "LIST:BULLET");
        if (c >= '0' && c <= '9') {
            std::size_t e = p;
            while (has(e) && e - p < 4 && t_[e] >= '0' && t_[e] <= '9') ++e;
            if (has(e) && in(t_[e], ".)") && (!has(e + 1) || in(t_[e + 1], " \t")))
                return item(e + 1, "LIST:NUMBER");
        }
        if (c == '>' && !(strict_ && stack_.size() > base_)) {
            if (Node* n = last(); n == nullptr || n->merge != "QUOTE") add_leaf("QUOTE", "QUOTE");
            return rest(p + 1, false);
        }
        if (c == '|' && row(p)) return rest(p, false);
        if (c == '`' || c == '~')
            if (const std::size_t after = fence(p)) return after;
        if ((c == '{' || c == '[') && p >= floor_ && has(p + 1))
            if (const std::size_t after = json(p)) return after;
        if (Node* n = last(); p - start >= 2 && n != nullptr && n->merge.starts_with("LIST"))
            return rest(p, false);
        text();
        return rest(p, true);
    }
    std::size_t item(std::size_t p, const std::string& label) {
        if (Node* n = last(); n != nullptr && n->merge == label)
            ++n->count;
        else
            add_leaf(label, label)->counted = true;
        return rest(std::min(p, t_.size()), false);
    }
    bool row(std::size_t p) {
        if (Node* n = last(); n != nullptr && n->merge.starts_with("TABLE"))
            return ++n->count, true;
        std::size_t e = p;
        while (has(e) && !in(t_[e], "\n\r<")) ++e;
        while (in(t_[e - 1], " \t")) --e;
        std::size_t bars = 0;
        bool last_bar = false;
        for (std::size_t i = p; i < e; ++i) {
            last_bar = t_[i] == '|' && (i == p || t_[i - 1] != '\\');
            bars += last_bar;
        }
        const std::size_t columns = last_bar ? bars - 1 : bars;
        if (bars < 2 || columns < 1) return false;
        const std::string label = "TABLE:" + std::to_string(std::min<std::size_t>(columns, 0xFFFF));
        add_leaf(label, label)->counted = true;
        return true;
    }
    std::size_t json(std::size_t p) {
        std::string shape;
        Json json(t_, p);
        const bool ok = json.parse(shape);
        std::size_t e = json.at();
        if (ok)
            while (has(e) && in(t_[e], " \t")) ++e;
        if (!ok || (has(e) && !in(t_[e], "\n\r<"))) {
            floor_ = std::max(floor_, std::min(json.at(), t_.size()));
            return 0;
        }
        add_leaf("JSON:" + shape, "JSON:" + shape);
        if (strict_ && stack_.size() > base_)
            for (std::size_t i = p; i < json.at(); ++i) {
                if (t_[i] == '<') error(Problem::kRawLess);
                if (t_[i] == '>') error(Problem::kRawGreater);
                if (t_[i] == '&' && !entity(i)) error(Problem::kRawAmpersand);
            }
        return e;
    }
    std::size_t rest(std::size_t p, bool mark) {
        for (; has(p); ++p) {
            const char c = t_[p];
            if (in(c, "\n\r")) return p + 1;
            if (c == '<') {
                if (const std::size_t after = tag(p)) return after;
                if (mark) text();
            }
            if (strict_ && stack_.size() > base_) {
                if (c == '>') error(Problem::kRawGreater);
                if (c == '&' && !entity(p)) error(Problem::kRawAmpersand);
            }
        }
        return p;
    }
    bool entity(std::size_t p) const {
        std::string_view s = t_.substr(p, 12);
        for (const std::string_view e : {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"})
            if (s.starts_with(e)) return true;
        if (!s.starts_with("&#")) return false;
        s.remove_prefix(2);
        const bool hex = s.starts_with("x");
        if (hex) s.remove_prefix(1);
        const std::size_t n = s.find_first_not_of(hex ? "0123456789abcdefABCDEF" : "0123456789");
        return n != std::string_view::npos && n > 0 && s[n] == ';';
    }

    // --- tags -----------------------------------------------------------------------------------
    std::size_t no_tag(Problem problem) {
        if (strict_ && (stack_.size() > base_ || problem != Problem::kRawLess)) error(problem);
        return 0;
    }
    std::size_t tag(std::size_t p) {
        if (at(p + 1) == '/') return closing(p);
        if (at(p + 1) == '!') {
            if (t_.substr(p, 4) != "<!--") return no_tag(Problem::kRawLess);
            const std::size_t e = t_.find("-->", p + 4);
            // A later comment cannot be closed either; it is then a raw "<" and no illegal tag.
            if (e == std::string_view::npos)
                return no_tag(std::exchange(comment_failed_, block_ + 1) == block_ + 1
                                  ? Problem::kRawLess
                                  : Problem::kIllegalTag);
            fresh_ = false;
            return e + 3;
        }
        if (!has(p + 1) || !name_start(t_[p + 1])) return no_tag(Problem::kRawLess);
        std::size_t e = p + 1;
        while (has(e) && name_char(t_[e])) ++e;
        const std::string name(t_.substr(p + 1, e - p - 1));
        if (name.size() > 64 || !has(e) || !in(t_[e], ">/ \t\n\r\f\v"))
            return no_tag(Problem::kIllegalTag);
        char quote = '\0';
        for (;; ++e) {
            if (!has(e) || t_[e] == '<') return no_tag(Problem::kIllegalTag);
            if (quote != '\0') {
                if (t_[e] == quote) quote = '\0';
            } else if (in(t_[e], "\"'")) {
                quote = t_[e];
            } else if (t_[e] == '>') {
                break;
            }
        }
        const bool empty = t_[e - 1] == '/';
        ++e;
        if (name == "semantic_anchor") {
            std::string_view content;
            if (!empty) {
                std::size_t from = e;
                for (;; ++from) {
                    from = t_.find("</semantic_anchor", from);
                    if (from == std::string_view::npos) return no_tag(Problem::kUnclosedTag);
                    std::size_t end = from + 17;
                    while (has(end) && in(t_[end], " \t\n\r\f\v")) ++end;
                    if (at(end) != '>') continue;
                    content = t_.substr(e, from - e);
                    e = end + 1;
                    break;
                }
            }
            while (!content.empty() && in(content.front(), " \t\n\r\f\v")) content.remove_prefix(1);
            while (!content.empty() && in(content.back(), " \t\n\r\f\v")) content.remove_suffix(1);
            const XXH128_hash_t h = XXH3_128bits_withSeed(content.data(), content.size(), 1);
            add_leaf("SEMANTIC_ANCHOR:" + Key{h.high64, h.low64}.hex(), "");
            fresh_ = false;
            return e;
        }
        if (!empty && stack_.size() - base_ == 64) return no_tag(Problem::kTooDeep);
        Node* n = add(*stack_.back(), "TAG:" + escape(name, false));
        n->name = name;
        if (!empty) stack_.push_back(n);
        fresh_ = false;
        return e;
    }
    std::size_t closing(std::size_t p) {
        if (!has(p + 2) || !name_start(t_[p + 2])) return no_tag(Problem::kRawLess);
        std::size_t e = p + 2;
        while (has(e) && name_char(t_[e])) ++e;
        const std::string name(t_.substr(p + 2, e - p - 2));
        while (has(e) && in(t_[e], " \t\n\r\f\v")) ++e;
        if (name.size() > 64 || at(e) != '>') return no_tag(Problem::kIllegalTag);
        bool known = false;
        for (std::size_t k = base_; k < stack_.size(); ++k)
            known = known || stack_[k]->name == name;
        if (!known) {
            if (strict_) error(Problem::kStrayClose);
            text();
            fresh_ = false;
            return e + 1;
        }
        while (stack_.back()->name != name) dissolve();
        stack_.pop_back();
        fresh_ = false;
        return e + 1;
    }
    void dissolve() {
        if (strict_) error(Problem::kUnclosedTag);
        Node* gone = stack_.back();
        stack_.pop_back();
        // It becomes text, and what it held follows it in its parent.
        std::vector<NodePtr> inner = std::move(gone->children);
        gone->children.clear();
        gone->label = gone->merge = "TEXT";
        gone->leaf = gone->run = true;
        gone->count = 1;
        for (NodePtr& child : inner) stack_.back()->children.push_back(std::move(child));
        fresh_ = false;
    }

    // --- fences ---------------------------------------------------------------------------------
    std::size_t fence(std::size_t p) {
        const char mark = t_[p];
        std::size_t size = 0;
        while (at(p + size) == mark) ++size;
        if (size < 3) return 0;
        const std::size_t info = p + size;
        std::size_t eol = info;
        while (has(eol) && !in(t_[eol], "\n\r")) ++eol;
        if (eol - info > 255 && (has(info + 256) || eol - info > 256)) return 0;
        std::string_view line = t_.substr(info, eol - info);
        if (mark == '`' && line.find('`') != std::string_view::npos) return 0;
        while (!line.empty() && in(line.front(), " \t\f\v")) line.remove_prefix(1);
        line = line.substr(0, line.find_first_of(" \t\f\v{,"));
        const std::size_t begin = std::min(t_.size(), eol + 1);
        std::size_t end = t_.size();
        std::size_t after = t_.size();
        bool closed = false;
        for (std::size_t b = begin; b < t_.size() && !closed;) {
            std::size_t e = b;
            while (has(e) && !in(t_[e], "\n\r")) ++e;
            std::string_view l = t_.substr(b, e - b);
            while (!l.empty() && in(l.front(), " \t")) l.remove_prefix(1);
            while (!l.empty() && in(l.back(), " \t")) l.remove_suffix(1);
            if (l.size() >= size && l.find_first_not_of(mark) == std::string_view::npos) {
                closed = true;
                end = b;
                after = std::min(t_.size(), e + 1);
            }
            b = e + 1;
        }
        if (!closed && strict_) error(Problem::kUnclosedFence);
        std::string_view shown;
        const std::string_view content = t_.substr(begin, end - begin);
        const Lang lang =
            line.empty() ? detect_language(content, false) : lang_from_tag(line, shown);
        code(lang,
             lang != Lang::kOther ? ""
             : !shown.empty()     ? std::string(shown)
                                  : escape(line, true),
             begin, end);
        return after;
    }
    void code(Lang lang, const std::string& other, std::size_t begin, std::size_t end) {
        Node* block = add(*stack_.back(), "CODE_BLOCK");
        Node* inner = add(*block, lang == Lang::kOther ? other : std::string(lang_name(lang)));
        stack_.push_back(inner);
        const std::string_view content = t_.substr(begin, end - begin);
        if (lang == Lang::kJson) {
            for (std::size_t p = 0;;) {
                while (p < content.size() && in(content[p], " \t\n\r\f\v")) ++p;
                if (p >= content.size()) break;
                std::string shape;
                Json json(content, p);
                if (!json.parse(shape)) {
                    floor_ = std::max(floor_, begin + std::min(json.at(), content.size()));
                    break;
                }
                add_leaf("JSON:" + shape, "JSON:" + shape);
                p = json.at();
            }
        } else if (lang != Lang::kPlain && lang != Lang::kOther) {
            for (const CodeNode& n : read_code(content, lang)) {
                if (n.kind == CodeNode::kImport) add_leaf("IMPORT", "IMPORT");
                if (n.kind == CodeNode::kClass) add_leaf("CLASS_DEF", "");
                if (n.kind == CodeNode::kFunction) {
                    Node* f = add(*inner, "FUNCTION_DEF");
                    add(*f, "PARAMS:" + std::to_string(std::min<std::uint32_t>(n.params, 255)));
                }
            }
        }
        stack_.pop_back();
        fresh_ = false;
    }

    // --- printing -------------------------------------------------------------------------------
    void print(const Node& parent, int depth) {
        result_.complexity = std::max(result_.complexity, depth);
        for (std::size_t i = 0; i < parent.children.size(); ++i) {
            const Node& n = *parent.children[i];
            std::uint32_t count = n.count;
            if (!n.merge.empty()) {
                int block = n.block;
                while (i + 1 < parent.children.size() && parent.children[i + 1]->merge == n.merge) {
                    const Node& next = *parent.children[++i];
                    if (!n.run || next.block != block) count += next.count;
                    block = next.block;
                }
            }
            out_ += "[" + n.label;
            if (n.counted || (!n.merge.empty() && count > 1))
                out_ += ":" + std::to_string(step(count));
            if (n.children.empty()) result_.complexity = std::max(result_.complexity, depth + 1);
            print(n, depth + 1);
            out_ += "]";
        }
    }

    const bool strict_;
    Result result_;
    std::string out_;
    std::string_view t_;
    int block_ = 0;
    int comment_failed_ = 0;
    std::vector<Node*> stack_;  // open elements, innermost last
    std::size_t base_ = 1;      // stack size with no tag open
    bool fresh_ = false;
    std::size_t floor_ = 0;
};

inline Result read(const Prompt& prompt, bool strict) { return Reader(strict).read(prompt); }

}  // namespace zerohop::skeleton::reference
