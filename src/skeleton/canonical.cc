// Nodes -> the hashed form, its keys and its depth. docs/formats/skeleton.md §2 and §8.
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "skeleton/languages.h"
#include "skeleton/scan.h"

namespace zerohop::skeleton {
namespace {

constexpr std::string_view kLabels[] = {
    "TOOLS",           "SYSTEM",     "USER",         "ASSISTANT", "TOOL_USE", "TOOL_RESULT", "TAG",
    "SEMANTIC_ANCHOR", "CODE_BLOCK", "FUNCTION_DEF", "CLASS_DEF", "IMPORT",   "HEADING",     "LIST",
    "TABLE",           "QUOTE",      "JSON",         "IMAGE",     "TEXT",     "TEXT"};
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
    void number(std::uint32_t v) {
        char digits[10];
        std::size_t size = 0;
        do {
            digits[size++] = static_cast<char>('0' + v % 10);
            v /= 10;
        } while (v > 0);
        while (size > 0) put(digits[--size]);
    }
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
    void begin(std::string_view label) {
        put('[');
        put(label);
        deepest_ = std::max(deepest_, ++depth_);
        if (!closed_) return;
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
    std::string_view label(Kind kind) const { return kLabels[static_cast<std::size_t>(kind)]; }

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
        begin(lang == Lang::kOther ? shown : lang_name(lang));
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
        begin(label(n.kind));
        switch (n.kind) {
            case Kind::kTools:
                put(':');
                number(step(n.count));
                break;
            case Kind::kAnchor: {
                put(':');
                if (closed_) {
                    const std::string_view s = range(n);
                    const XXH128_hash_t h =
                        XXH3_128bits_withSeed(s.data(), s.size(), kFormatVersion);
                    hex({h.high64, h.low64});
                } else {
                    escaped(range(n).substr(0, 48), false);
                }
                break;
            }
            case Kind::kFunctionDef:
                seal();
                begin("PARAMS");
                put(':');
                number(std::min<std::uint32_t>(n.count, 255));
                seal();
                close_marks(2);
                return;
            case Kind::kHeading:
                put(':');
                number(n.sub);
                break;
            case Kind::kList:
                put(n.sub == 0 ? ":BULLET:" : ":NUMBER:");
                number(step(count_));
                break;
            case Kind::kTable:
                put(':');
                number(n.columns);
                put(':');
                number(step(count_));
                break;
            case Kind::kJson:
                put(':');
                put(std::string_view(a_.shapes.data() + n.name, n.name_size));
                [[fallthrough]];
            default:
                if (count_ > 1) {
                    put(':');
                    number(step(count_));
                }
        }
        seal();
        close_marks(1);
    }
    void close_marks(int n) {
        depth_ -= n;
        if (closed_)
            while (n-- > 0) put(']');
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
    if (count <= 2) return count;
    std::uint64_t low = 2;
    while (low * 2 < count) low *= 2;
    return static_cast<std::uint32_t>(low + 1);
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
