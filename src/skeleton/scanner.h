// Scanner: one pass over a prompt's bytes, 64 at a time, emitting nodes in preorder.
//
// A template over the vector policy (simd_*.h), instantiated by scan_*.cc and nowhere else. It is
// included after scanner_deps.h. The three layers share the cursor over the bytes:
//     text (this file)   lines, tags, fences          -> Node
//     json (scanner_json.h)   one value               -> its shape
//     code (scanner_code.h, scanner_quotes.h)   events of one language  -> FunctionDef, ClassDef,
//     Import
// and sweep() runs a window ahead of them: UTF-8, NUL, volatile values, while the bytes are in L1.
//
// Time is linear: every search that fails remembers it (json_floor_, no_anchor_close_, …), and
// every look backwards is bounded by the end of what was seen before.
#pragma once

#include "skeleton/scanner_deps.h"

namespace zerohop::skeleton {

template <class V>
class Scanner {
  public:
    Scanner(Arena::State& arena, const Options& options)
        : a_(arena),
          strict_(options.strict),
          template_(options.template_text),
          set_(options.strict ? kStrictSet : kTextSet) {}

    void run(const Prompt& prompt) {
        if (prompt.tools > 0) push(Kind::kTools, 0, 0).count = prompt.tools;
        for (const Message& message : prompt.messages) {
            if (&message != &prompt.messages.back()) fetch(*(&message + 1));
            const Kind kind = message.role == Role::kSystem ? Kind::kSystem
                              : message.role == Role::kUser ? Kind::kUser
                                                            : Kind::kAssistant;
            const std::size_t node = container(kind, 0);
            for (const Block& block : message.blocks) block_of(block);
            finish(node);
        }
    }

  private:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;
    struct Open {
        std::uint32_t node;
        std::string_view name;
    };

    // Messages lie apart in memory: the next one's ends are on their way while this one is read.
    static void fetch(const Message& message) {
        if (message.blocks.empty()) return;
        const std::string_view text = message.blocks.front().text;
        __builtin_prefetch(text.data());
        __builtin_prefetch(text.data() + text.size());
    }

    // --- nodes ----------------------------------------------------------------------------------
    Node& push(Kind kind, std::size_t begin, std::size_t end) {
        Node node;
        node.kind = kind;
        node.block = block_;
        node.begin = static_cast<std::uint32_t>(begin);
        node.end = static_cast<std::uint32_t>(end);
        node.next = static_cast<std::uint32_t>(a_.nodes.size() + 1);
        return a_.nodes.push(node);
    }
    Node& leaf(Kind kind, std::size_t begin, std::size_t end) {
        leaf_ = static_cast<std::uint32_t>(a_.nodes.size());
        return push(kind, begin, end);
    }
    bool leaf_is(Kind kind) const { return leaf_ != kNone && a_.nodes[leaf_].kind == kind; }
    std::size_t container(Kind kind, std::size_t begin) {
        leaf_ = kNone;
        push(kind, begin, begin);
        return a_.nodes.size() - 1;
    }
    void finish(std::size_t node) {
        a_.nodes[node].next = static_cast<std::uint32_t>(a_.nodes.size());
        leaf_ = kNone;
    }
    void mark_text(std::size_t begin) {
        if (!leaf_is(Kind::kText)) leaf(Kind::kText, begin, begin + 1);
    }
    void report(Problem problem, std::size_t offset) { a_.report(problem, block_, offset); }

    // --- blocks ---------------------------------------------------------------------------------
    void block_of(const Block& block) {
        std::string_view text = block.kind == BlockKind::kImage ? std::string_view{} : block.text;
        block_ = static_cast<std::uint32_t>(a_.blocks.size());
        if (text.size() > kMaxBlockBytes) {
            report(Problem::kTooLarge, kMaxBlockBytes);
            text = text.substr(0, kMaxBlockBytes);
        }
        a_.blocks.push(text);
        a_.names.push(block.name);
        t_ = text.data();
        n_ = text.size();
        keep_tail();
        leaf_ = kNone;
        swept_ = 0;
        cursor_base_ = kNone;
        json_floor_ = 0;
        no_anchor_close_ = no_comment_close_ = false;
        digit_carry_ = 0;
        volatile_next_ = 0;
        matcher_ = VolatileMatcher(text);
        utf8_.reset();
        switch (block.kind) {
            case BlockKind::kImage:
                leaf(Kind::kImage, 0, 0);
                break;
            case BlockKind::kText:
                text_block();
                break;
            case BlockKind::kToolResult: {
                const std::size_t node = container(Kind::kToolResult, 0);
                text_block();
                finish(node);
                break;
            }
            case BlockKind::kToolUse: {
                const std::size_t node = container(Kind::kToolUse, 0);
                std::size_t at = skip_space(0, n_);
                if (at < n_) {
                    std::size_t end = 0;
                    if (!json_node(at, n_, end) || skip_space(end, n_) < n_) {
                        a_.nodes.resize_down(node + 1);
                        leaf(Kind::kText, at, n_);
                    }
                }
                finish(node);
                break;
            }
        }
        leaf_ = kNone;
        sweep(n_);
        end_of_bytes();
    }

    // --- bytes ----------------------------------------------------------------------------------
    static std::uint8_t cls(char c) { return kCharClass[static_cast<unsigned char>(c)]; }
    static bool is_space(char c) { return (cls(c) & kSpace) != 0; }
    static bool is_ident(char c) { return (cls(c) & kIdent) != 0; }

    // 64 bytes from `at`; past the block's end, zeros.
    typename V::Bytes load(std::size_t at) const {
        const std::size_t left = n_ - at;
        return V::load(left >= 64 ? t_ + at : tail_ + 64 - left);
    }
    void keep_tail() {
        if (n_ >= 64)
            std::memcpy(tail_, t_ + n_ - 64, 64);
        else if (n_ > 0)
            std::memcpy(tail_ + 64 - n_, t_, n_);
    }
    std::size_t skip_space(std::size_t at, std::size_t end) const {
        while (at < end && is_space(t_[at])) ++at;
        return at;
    }
    // First byte of `set` in [at, end), or end.
    std::size_t find(std::size_t at, std::size_t end, const CharSet& set) const {
        for (; at < end; at += 64)
            if (const std::uint64_t m = V::in(load(at), set))
                return std::min(end, at + static_cast<std::size_t>(std::countr_zero(m)));
        return end;
    }
    // First line end, tag or (strict) raw character at or after `at`, or n_. Keeps its block's
    // masks. `text`: the last node is text, so lines that begin with a letter change nothing; those
    // are passed over, but not past what is swept.
    std::size_t next_event(std::size_t at, bool text) {
        std::uint64_t wanted = ~std::uint64_t{0} << (at & 63);
        for (std::size_t base = at & ~std::size_t{63}; base < n_; base += 64) {
            if (base != cursor_base_) look(base);
            const std::uint64_t quiet = text && base + 64 < swept_ ? cursor_quiet_ : 0;
            if (const std::uint64_t m = cursor_mask_ & ~quiet & wanted)
                return base + static_cast<std::size_t>(std::countr_zero(m));
            wanted = ~std::uint64_t{0};
        }
        return n_;
    }
    void look(std::size_t base) {
        const typename V::Bytes v = load(base);
        cursor_base_ = base;
        cursor_mask_ = V::in(v, set_);
        cursor_quiet_ = V::equal(v, '\n') & ((V::in(v, kLetterSet) | V::high(v)) >> 1);
    }

    void sweep(std::size_t until) {
        for (; swept_ < n_ && swept_ < until; swept_ += 64) {
            const typename V::Bytes v = load(swept_);
            if (V::high(v) != 0)
                utf8_.block(v);
            else
                utf8_.ascii();
            if (const std::uint64_t zeros = V::equal(v, '\0')) nuls(zeros);
            const std::uint64_t digits = V::in(v, kDigitSet);
            if (digits != 0) {
                const std::uint64_t starts = digits & ~((digits << 1) | digit_carry_);
                if (const std::uint64_t some = doubtful(v, digits, starts))
                    numbers(v, digits, some);
            }
            digit_carry_ = digits >> 63;
        }
    }
    [[gnu::noinline]] void numbers(const typename V::Bytes& v, std::uint64_t digits,
                                   std::uint64_t starts) {
        const std::uint64_t alnum = V::in(v, kAlnumSet);
        const std::uint64_t joined = alnum | V::in(v, kJoinSet);
        for (; starts != 0; starts &= starts - 1) {
            const auto bit = static_cast<unsigned>(std::countr_zero(starts));
            const std::size_t at = swept_ + bit;
            if (at < volatile_next_) continue;
            if (const std::size_t end = ordinary(bit, digits, alnum, joined))
                volatile_next_ = end;
            else
                word_with_digit(at);
        }
    }
    // Of `starts`, those that ordinary() or the matcher must look at: all but short words in the
    // middle of the block whose digits follow a letter (x1), or whose digits no date, time or
    // counter's word can be around.
    [[gnu::noinline]] static std::uint64_t doubtful(const typename V::Bytes& v,
                                                    std::uint64_t digits, std::uint64_t starts) {
        const std::uint64_t alnum = V::in(v, kAlnumSet);
        const std::uint64_t joined = alnum | V::in(v, kJoinSet);
        const std::uint64_t edge = (joined & ~(joined + 1)) |
                                   ~(~std::uint64_t{0} >> std::min(63, std::countl_one(joined)));
        std::uint64_t eight = joined & (joined >> 1);  // eight joined bytes begin here
        eight &= eight >> 2;
        eight &= eight >> 4;
        const std::uint64_t sixteen = alnum & ~(alnum << 1) & eight & (eight >> 8);
        const std::uint64_t lengthy = alnum & ~(alnum + sixteen);  // words these begin
        starts &= ~((alnum & ~digits) << 1) | edge | lengthy;
        if (starts == 0) return 0;
        const std::uint64_t gap = V::in(v, kGapSet);
        const std::uint64_t may = V::in(v, kCounterEndSet);
        const std::uint64_t after = V::in(v, kAfterSet);
        const std::uint64_t counted =
            ((may & ~alnum) << 1) |
            ((gap << 1) & ((may << 2) | ((gap << 2) & ((may << 3) | ((gap << 3) & (may << 4))))));
        return starts & (counted | (after >> 2) | (after >> 4) | edge | lengthy | eight | 15);
    }
    // Most words with a digit can be told from the block's masks to be no volatile value: too short
    // for an id, and with a letter in them or nothing around them that dates, times and counters
    // have. Where such a word ends; 0: VolatileMatcher must look.
    std::size_t ordinary(unsigned bit, std::uint64_t digits, std::uint64_t alnum,
                         std::uint64_t joined) const {
        const std::uint64_t below = ~alnum & ((std::uint64_t{1} << bit) - 1);
        const std::uint64_t above = ~joined & (~std::uint64_t{0} << bit);
        if (below == 0 || above == 0) return 0;
        const auto first = static_cast<unsigned>(64 - std::countl_zero(below));
        const auto run = static_cast<unsigned>(std::countr_zero(above));
        if (run - first >= 16 || swept_ + first < volatile_next_) return 0;
        const auto end =
            static_cast<unsigned>(std::countr_zero(~alnum & (~std::uint64_t{0} << bit)));
        const std::uint64_t word = (std::uint64_t{1} << end) - (std::uint64_t{1} << first);
        const std::size_t stop = swept_ + end;
        if ((alnum & ~digits & word) != 0) return stop;
        const unsigned size = end - first;
        const char next = stop < n_ ? t_[stop] : '\0';
        if (size >= 10 || (size == 4 && (next == '-' || next == '/')) || (size == 2 && next == ':'))
            return 0;
        const char* before = t_ + swept_ + first - 1;
        switch (*before) {
            case '#':
                return 0;
            case ' ':
            case ':':
            case '=': {
                if (swept_ + first < 2) return stop;
                const char c = before[-1];
                // The last letters of the counters' words, and what may stand between.
                static constexpr CharSet kMay = char_set("tnrqeTNRQE# :=");
                return kMay.has(c) ? 0 : stop;
            }
            default:
                return stop;
        }
    }
    void nuls(std::uint64_t zeros) {
        if (n_ - swept_ < 64) zeros &= (std::uint64_t{1} << (n_ - swept_)) - 1;
        for (; zeros != 0; zeros &= zeros - 1)
            report(Problem::kNulByte, swept_ + static_cast<std::size_t>(std::countr_zero(zeros)));
    }
    void word_with_digit(std::size_t digit) {
        std::size_t word = digit;
        while (word > volatile_next_ && (cls(t_[word - 1]) & kIdent) != 0 &&
               static_cast<unsigned char>(t_[word - 1]) < 128 && t_[word - 1] != '_' &&
               t_[word - 1] != '$')
            --word;
        const VolatileMatch m = matcher_.match(word, digit);
        volatile_next_ = m.end;
        if (!m.found) return;
        ++a_.volatile_count;
        if (a_.volatiles.size() < kMaxReported)
            a_.volatiles.push({m.kind, block_, static_cast<std::uint32_t>(m.begin),
                               static_cast<std::uint32_t>(m.end - m.begin)});
    }
    void end_of_bytes() {
        utf8_.ascii();
        if (!utf8_.bad()) return;
        // Only now is the place worth a second look.
        typename V::Utf8 probe;
        std::size_t good = 0;
        for (std::size_t base = 0; base < n_ && !probe.bad(); base += 64) {
            good = base;
            probe.block(load(base));
        }
        report(Problem::kInvalidUtf8, first_invalid(good >= 64 ? good - 64 : 0));
    }
    std::size_t first_invalid(std::size_t near) const {
        while (near > 0 && (static_cast<unsigned char>(t_[near]) & 0xC0) == 0x80) --near;
        for (std::size_t i = near; i < n_;) {
            const auto c = static_cast<unsigned char>(t_[i]);
            const std::size_t size = c < 0x80   ? 1
                                     : c < 0xC2 ? 0
                                     : c < 0xE0 ? 2
                                     : c < 0xF0 ? 3
                                     : c < 0xF5 ? 4
                                                : 0;
            if (size == 0 || i + size > n_) return i;
            for (std::size_t k = 1; k < size; ++k) {
                const auto d = static_cast<unsigned char>(t_[i + k]);
                const unsigned low = k > 1 ? 0x80 : c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
                const unsigned up = k > 1 ? 0xBF : c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
                if (d < low || d > up) return i;
            }
            i += size;
        }
        return n_;
    }

#define ZH_SKELETON_SCANNER_BODY
#include "skeleton/scanner_code.h"
#include "skeleton/scanner_json.h"
#include "skeleton/scanner_quotes.h"
#include "skeleton/scanner_text.h"
#undef ZH_SKELETON_SCANNER_BODY

    Arena::State& a_;
    const bool strict_;
    const bool template_;
    const CharSet set_;

    // The current block.
    const char* t_ = nullptr;
    std::size_t n_ = 0;
    char tail_[128] = {};  // its last 64 bytes and as many zeros
    std::uint32_t block_ = 0;
    std::uint32_t leaf_ = kNone;  // the last sibling, when it is a leaf

    std::size_t cursor_base_ = kNone;
    std::uint64_t cursor_mask_ = 0;
    std::uint64_t cursor_quiet_ = 0;  // line ends before a letter
    std::size_t swept_ = 0;
    std::uint64_t digit_carry_ = 0;
    std::size_t volatile_next_ = 0;
    VolatileMatcher matcher_{{}};
    typename V::Utf8 utf8_;

    std::size_t json_floor_ = 0;  // a JSON value was tried up to here in vain
    bool no_anchor_close_ = false;
    bool no_comment_close_ = false;
    std::array<Open, kMaxOpenTags> open_;
    std::size_t open_count_ = 0;
};

}  // namespace zerohop::skeleton
