// Nodes -> the hashed form, its keys and its depth. docs/formats/skeleton.md §2 and §8.
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "skeleton/languages.h"
#include "skeleton/scan.h"

namespace zerohop::skeleton {
namespace {

// An opening bracket and a label, as the 16 bytes that are copied and how many of them count.
struct Label {
    char text[16] = {};
    std::uint8_t size = 0;
};
constexpr Label opened(std::string_view label) {
    Label l;
    l.text[l.size++] = '[';
    for (const char c : label) l.text[l.size++] = c;
    return l;
}
constexpr Label kLabels[] = {
    opened("TOOLS"),      opened("SYSTEM"),       opened("USER"),      opened("ASSISTANT"),
    opened("TOOL_USE"),   opened("TOOL_RESULT"),  opened("TAG"),       opened("SEMANTIC_ANCHOR"),
    opened("CODE_BLOCK"), opened("FUNCTION_DEF"), opened("CLASS_DEF"), opened("IMPORT"),
    opened("HEADING"),    opened("LIST"),         opened("TABLE"),     opened("QUOTE"),
    opened("JSON"),       opened("IMAGE"),        opened("TEXT"),      opened("TEXT")};
constexpr Label kParams = opened("PARAMS");
constexpr std::size_t kLeafRoom = 96;  // a leaf's labels, brackets and numbers
constexpr char kHex[] = "0123456789abcdef";

bool is_container(Kind kind) {
    switch (kind) {
        case Kind::kSystem:
        case Kind::kUser:
        case Kind::kAssistant:
        case Kind::kToolUse:
        case Kind::kToolResult:
        case Kind::kTag:
        case Kind::kCodeBlock:
            return true;
        default:
            return false;
    }
}

// Writes brackets; adjacent leaves that are alike are held back and merged.
class Writer {
  public:
    explicit Writer(Arena::State& arena, bool closed) : a_(arena), closed_(closed) {}
    int depth() const { return deepest_; }

    void write(std::size_t from, std::size_t to) {
        std::size_t ends = 0;
        for (std::size_t i = from; i < to; ++i) {
            while (ends > 0 && ends_[ends - 1].next <= i) close(ends_[--ends].brackets);
            const Node& n = a_.nodes[i];
            if (is_container(n.kind)) {
                flush();
                const int brackets = open(n);
                ends_[ends++] = {n.next, brackets};
            } else {
                hold(n);
            }
        }
        while (ends > 0) close(ends_[--ends].brackets);
        flush();
    }

  private:
    void put(char c) { a_.canonical.push(c); }
    void put(std::string_view s) { a_.canonical.append(s.data(), s.size()); }
    void hex(Key key) {
        for (const std::uint64_t half : {key.high, key.low})
            for (int shift = 60; shift >= 0; shift -= 4) put(kHex[(half >> shift) & 15]);
    }
    // Bytes that could be read as brackets or separators become %XX.
    void escaped(std::string_view s, bool upper) {
        for (char c : s) {
            const auto u = static_cast<unsigned char>(c);
            if (upper && c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
            const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                               (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' ||
                               c == '+' || c == '#' || u >= 128;
            if (plain) {
                put(c);
            } else {
                put('%');
                put(kHex[u >> 4]);
                put(kHex[u & 15]);
            }
        }
    }
    void begin(const Label& label) {
        std::memcpy(a_.canonical.reserve_more(sizeof label.text), label.text, sizeof label.text);
        a_.canonical.commit(label.size);
        deepest_ = std::max(deepest_, ++depth_);
    }
    void seal() {
        if (!closed_) put(']');
    }
    void close(int brackets) {
        flush();
        for (; brackets > 0; --brackets) {
            --depth_;
            if (closed_) put(']');
        }
    }
    std::string_view range(const Node& n) const {
        return a_.blocks[n.block].substr(n.name, n.name_size);
    }
    static const Label& label(Kind kind) { return kLabels[static_cast<std::size_t>(kind)]; }

    int open(const Node& n) {
        begin(label(n.kind));
        if (n.kind == Kind::kTag) {
            put(':');
            escaped(range(n), false);
        } else if (n.kind == Kind::kToolUse) {
            put(':');
            escaped(a_.names[n.block], false);
        }
        seal();
        if (n.kind != Kind::kCodeBlock) return 1;
        std::string_view shown;
        auto lang = static_cast<Lang>(n.sub);
        if (lang == Lang::kOther) static_cast<void>(lang_from_tag(range(n), shown));
        begin({.text = {'['}, .size = 1});
        put(lang == Lang::kOther ? shown : lang_name(lang));
        if (lang == Lang::kOther && shown.empty()) escaped(range(n), true);
        seal();
        return 2;
    }

    bool alike(const Node& x, const Node& y) const {
        Kind kx = x.kind == Kind::kDissolved ? Kind::kText : x.kind;
        Kind ky = y.kind == Kind::kDissolved ? Kind::kText : y.kind;
        if (kx != ky) return false;
        switch (kx) {
            case Kind::kText:
            case Kind::kImport:
            case Kind::kQuote:
            case Kind::kImage:
                return true;
            case Kind::kList:
                return x.sub == y.sub;
            case Kind::kTable:
                return x.columns == y.columns;
            case Kind::kJson:
                return x.name_size == y.name_size &&
                       std::memcmp(a_.shapes.data() + x.name, a_.shapes.data() + y.name,
                                   x.name_size) == 0;
            default:
                return false;
        }
    }
    static std::uint32_t units(const Node& n) {
        return n.kind == Kind::kList || n.kind == Kind::kTable ? n.count : 1;
    }
    void hold(const Node& n) {
        if (held_ != nullptr && alike(*held_, n)) {
            // One run of text per block, however often markup that was none interrupts it.
            const bool text =
                n.kind == Kind::kText || n.kind == Kind::kDissolved || n.kind == Kind::kQuote;
            if (!text || n.block != held_block_) count_ += units(n);
            held_block_ = n.block;
            return;
        }
        flush();
        held_ = &n;
        held_block_ = n.block;
        count_ = units(n);
    }
    void flush() {
        if (held_ == nullptr) return;
        const Node& n = *held_;
        held_ = nullptr;
        if (n.kind == Kind::kAnchor) return anchor(n);
        const std::size_t shape = n.kind == Kind::kJson ? n.name_size : 0;
        char* const start = a_.canonical.reserve_more(kLeafRoom + shape);
        char* p = opening(start, label(n.kind));
        int brackets = 1;
        switch (n.kind) {
            case Kind::kTools:
                p = number(p, step(n.count));
                break;
            case Kind::kFunctionDef:
                if (!closed_) *p++ = ']';
                p = number(opening(p, kParams), std::min<std::uint32_t>(n.count, 255));
                brackets = 2;
                break;
            case Kind::kHeading:
                p = number(p, n.sub);
                break;
            case Kind::kList:
                std::memcpy(p, n.sub == 0 ? ":BULLET" : ":NUMBER", 7);
                p = number(p + 7, step(count_));
                break;
            case Kind::kTable:
                p = number(number(p, n.columns), step(count_));
                break;
            case Kind::kJson:
                *p++ = ':';
                std::memcpy(p, a_.shapes.data() + n.name, shape);
                p += shape;
                [[fallthrough]];
            default:
                if (count_ > 1) p = number(p, step(count_));
        }
        *p++ = ']';
        if (closed_ && brackets == 2) *p++ = ']';
        a_.canonical.commit(static_cast<std::size_t>(p - start));
        deepest_ = std::max(deepest_, depth_ + brackets);
    }
    static char* opening(char* p, const Label& label) {
        std::memcpy(p, label.text, sizeof label.text);
        return p + label.size;
    }
    static char* number(char* p, std::uint32_t v) {
        *p++ = ':';
        if (v < 10) {
            *p++ = static_cast<char>('0' + v);
            return p;
        }
        char digits[10];
        std::size_t size = 0;
        for (; v > 0; v /= 10) digits[size++] = static_cast<char>('0' + v % 10);
        while (size > 0) *p++ = digits[--size];
        return p;
    }
    void anchor(const Node& n) {
        begin(label(n.kind));
        put(':');
        const std::string_view s = range(n);
        if (closed_) {
            const XXH128_hash_t h = XXH3_128bits_withSeed(s.data(), s.size(), kFormatVersion);
            hex({h.high64, h.low64});
        } else {
            escaped(s.substr(0, 48), false);
        }
        --depth_;
        put(']');
    }

    struct End {
        std::size_t next;
        int brackets;
    };
    Arena::State& a_;
    const bool closed_;
    std::array<End, kMaxOpenTags + 8> ends_;
    const Node* held_ = nullptr;
    std::uint32_t held_block_ = 0;
    std::uint32_t count_ = 0;
    int depth_ = 0;
    int deepest_ = 0;
};

Key hash(std::string_view form, std::uint64_t part) {
    const XXH128_hash_t h = XXH3_128bits_withSeed(form.data(), form.size(),
                                                  (std::uint64_t{kFormatVersion} << 8) | part);
    return {h.high64, h.low64};
}

}  // namespace

std::uint32_t step(std::uint32_t count) {
    return count <= 2 ? count : std::bit_floor(count - 1) + 1;
}

void write_canonical(Arena::State& arena, Analysis& out) {
    arena.canonical.clear();
    Writer writer(arena, true);
    std::size_t head_end = 0;    // of the leading tools and system nodes
    std::size_t last_begin = 0;  // of the last message
    std::size_t i = 0;
    bool leading = true;
    while (i < arena.nodes.size()) {
        const Node& n = arena.nodes[i];
        if (leading && n.kind != Kind::kTools && n.kind != Kind::kSystem) leading = false;
        last_begin = arena.canonical.size();
        const std::size_t next = n.next;
        writer.write(i, next);
        if (leading) head_end = arena.canonical.size();
        i = next;
    }
    const std::string_view form(arena.canonical.data(), arena.canonical.size());
    out.canonical = form;
    out.complexity = writer.depth();
    out.whole = hash(form, 0);
    out.last_turn = hash(form.substr(last_begin), 1);
    out.system_tools = hash(form.substr(0, head_end), 2);
}

std::string flat_form(const Analysis& analysis) {
    Arena arena;
    Arena::State& s = arena.state();
    s.nodes.append(analysis.nodes.data(), analysis.nodes.size());
    s.blocks.append(analysis.blocks.data(), analysis.blocks.size());
    s.names.append(analysis.names.data(), analysis.names.size());
    s.shapes.append(analysis.shapes.data(), analysis.shapes.size());
    Writer writer(s, false);
    writer.write(0, s.nodes.size());
    return std::string(s.canonical.data(), s.canonical.size());
}

}  // namespace zerohop::skeleton
