#include "skeleton/volatile_match.h"

#include <array>

namespace zerohop::skeleton {
namespace {

constexpr std::uint8_t kDigit = 1, kHexLetter = 2, kLower = 4, kUpper = 8, kJoin = 16;
constexpr std::uint8_t kAlnum = kDigit | kLower | kUpper;
constexpr auto kClass = [] {
    std::array<std::uint8_t, 256> t{};
    for (int c = '0'; c <= '9'; ++c) t[static_cast<std::size_t>(c)] = kDigit;
    for (int c = 'a'; c <= 'z'; ++c) t[static_cast<std::size_t>(c)] = kLower;
    for (int c = 'A'; c <= 'Z'; ++c) t[static_cast<std::size_t>(c)] = kUpper;
    for (const char c : {'a', 'b', 'c', 'd', 'e', 'f', 'A', 'B', 'C', 'D', 'E', 'F'})
        t[static_cast<std::size_t>(c)] |= kHexLetter;
    t['_'] = kJoin;
    t['-'] = kJoin;
    return t;
}();
std::uint8_t cls(char c) { return kClass[static_cast<unsigned char>(c)]; }

// Words before a counter: lower case, compared without case.
constexpr std::string_view kCounterWords[] = {"request", "session",   "attempt", "counter", "count",
                                              "seq",     "iteration", "turn",    "nonce",   "run"};

struct Reader {
    std::string_view text;
    char at(std::size_t i) const { return i < text.size() ? text[i] : '\0'; }
    bool digit(std::size_t i) const { return (cls(at(i)) & kDigit) != 0; }
    bool alnum(std::size_t i) const { return (cls(at(i)) & kAlnum) != 0; }
    bool hex(std::size_t i) const { return (cls(at(i)) & (kDigit | kHexLetter)) != 0; }
    int two(std::size_t i) const {
        return digit(i) && digit(i + 1) ? (at(i) - '0') * 10 + (at(i + 1) - '0') : -1;
    }

    // hh:mm[:ss[.fraction]][Z|±hh[:]mm]; 0 when there is none.
    std::size_t time(std::size_t i) const {
        const int hour = two(i);
        if (hour < 0 || hour > 23 || at(i + 2) != ':') return 0;
        const int minute = two(i + 3);
        if (minute < 0 || minute > 59) return 0;
        std::size_t end = i + 5;
        if (at(end) == ':') {
            const int second = two(end + 1);
            if (second < 0 || second > 60) return 0;
            end += 3;
            if ((at(end) == '.' || at(end) == ',') && digit(end + 1)) {
                ++end;
                for (int n = 0; n < 9 && digit(end); ++n) ++end;
            }
        }
        if (at(end) == 'Z') return alnum(end + 1) ? 0 : end + 1;
        if ((at(end) == '+' || at(end) == '-') && two(end + 1) >= 0) {
            std::size_t zone = end + 3;
            if (at(zone) == ':') ++zone;
            if (two(zone) >= 0 && !alnum(zone + 2)) return zone + 2;
        }
        return alnum(end) || at(end) == ':' ? 0 : end;
    }
    // yyyy-mm-dd or yyyy/mm/dd; 0 when there is none.
    std::size_t date(std::size_t i) const {
        if (two(i) < 0 || two(i + 2) < 0) return 0;
        const char sep = at(i + 4);
        if ((sep != '-' && sep != '/') || at(i + 7) != sep) return 0;
        const int month = two(i + 5);
        const int day = two(i + 8);
        return month >= 1 && month <= 12 && day >= 1 && day <= 31 && !digit(i + 10) ? i + 10 : 0;
    }
    bool uuid(std::size_t i) const {
        static constexpr int kGroups[] = {8, 4, 4, 4, 12};
        for (int g = 0; g < 5; ++g) {
            if (g > 0 && at(i++) != '-') return false;
            for (int k = 0; k < kGroups[g]; ++k)
                if (!hex(i++)) return false;
        }
        return !alnum(i);
    }
    // A counter's word or a # stands before the digits.
    bool counted(std::size_t i) const {
        std::size_t b = i;
        while (b > 0 && i - b < 3 &&
               (text[b - 1] == ' ' || text[b - 1] == ':' || text[b - 1] == '='))
            --b;
        if (b > 0 && text[b - 1] == '#') return true;
        if (b == i || b == 0 || (cls(text[b - 1]) & (kLower | kUpper)) == 0) return false;
        std::size_t w = b;
        while (w > 0 && b - w < 10 && (cls(text[w - 1]) & kAlnum) != 0) --w;
        if (w > 0 && (cls(text[w - 1]) & kAlnum) != 0) return false;
        const std::string_view word = text.substr(w, b - w);
        for (const std::string_view want : kCounterWords) {
            if (want.size() != word.size()) continue;
            bool same = true;
            for (std::size_t k = 0; k < word.size() && same; ++k)
                same = (word[k] | 0x20) == want[k];
            if (same) return true;
        }
        return false;
    }
};

}  // namespace

VolatileMatch VolatileMatcher::match(std::size_t word, std::size_t digit) {
    const Reader r{text_};
    VolatileMatch out;
    out.begin = word;
    const auto found = [&out](VolatileKind kind, std::size_t end) {
        out.found = true;
        out.kind = kind;
        out.end = end;
        return out;
    };
    std::size_t end = digit;
    bool all_hex = true;
    bool letter = false;
    for (std::size_t i = word; i < digit; ++i) {
        letter = true;
        all_hex = all_hex && (cls(text_[i]) & kHexLetter) != 0;
    }
    while (end < text_.size() && (cls(text_[end]) & kAlnum) != 0) {
        const std::uint8_t c = cls(text_[end]);
        if ((c & kDigit) == 0) {
            letter = true;
            all_hex = all_hex && (c & kHexLetter) != 0;
        }
        ++end;
    }
    const std::size_t size = end - word;
    out.end = end;
    const char next = r.at(end);
    if (!letter && size < 4) {
        const char before = word > 0 ? text_[word - 1] : '\0';
        if (size == 2 && next == ':' && before != ':' && before != '.')
            if (const std::size_t e = r.time(word)) return found(VolatileKind::kTime, e);
        if ((before == ' ' || before == '#' || before == ':' || before == '=') && r.counted(word))
            return found(VolatileKind::kCounter, end);
        if (next != '-' && next != '_') return out;
    }
    if (size == 8 && all_hex && next == '-' && r.uuid(word))
        return found(VolatileKind::kUuid, word + 36);
    if (!letter) {
        if (size == 4 && (next == '-' || next == '/')) {
            if (const std::size_t d = r.date(word)) {
                const char sep = r.at(d);
                if (sep == 'T' || sep == ' ' || sep == 't')
                    if (const std::size_t t = r.time(d + 1))
                        return found(VolatileKind::kTimestamp, t);
                if (!r.alnum(d)) return found(VolatileKind::kDate, d);
            }
        }
        if ((size == 10 || size == 13 || size == 16 || size == 19) && text_[word] == '1' &&
            !(next == '.' && size > 10) && (word == 0 || text_[word - 1] != '.'))
            return found(VolatileKind::kEpoch, end);
        if (size <= 9 && r.counted(word)) return found(VolatileKind::kCounter, end);
    } else if (all_hex && size >= 16) {
        return found(VolatileKind::kHex, end);
    } else if (size >= 18 && text_[word] == '0' && r.at(word + 1) == 'x') {
        bool hex = true;
        for (std::size_t i = word + 2; i < end && hex; ++i) hex = r.hex(i);
        if (hex) return found(VolatileKind::kHex, end);
    }
    if (word >= no_token_before_) {
        std::size_t e = word;
        int runs = 0;
        bool lower = false;
        bool upper = false;
        bool in_digits = false;
        for (; e < text_.size(); ++e) {
            const std::uint8_t c = cls(text_[e]);
            if (c == 0) break;
            lower = lower || (c & kLower) != 0;
            upper = upper || (c & kUpper) != 0;
            const bool d = (c & kDigit) != 0;
            runs += d && !in_digits ? 1 : 0;
            in_digits = d;
        }
        if (e - word >= 20 && runs >= 3 && lower && upper) return found(VolatileKind::kToken, e);
        no_token_before_ = e;
    }
    return out;
}

}  // namespace zerohop::skeleton
