// Part of class Scanner (scanner.h): strings, comments and directives of one language, which the
// code scanner (scanner_code.h) passes over. docs/formats/skeleton.md §6.
#ifndef ZH_SKELETON_SCANNER_BODY
#pragma once
#else

std::size_t string(Code& s, std::size_t at, char quote) {
    s.touch();
    s.go_after = false;
    std::size_t e = at + 1;
    const bool triple =
        s.lang == Lang::kPython && at + 2 < s.end && t_[at + 1] == quote && t_[at + 2] == quote;
    if (triple)
        e = closed_by_three(s, at + 3, quote);
    else if (s.lang == Lang::kSql)
        e = closed_by_itself(s, at + 1, quote);
    else if (quote == '`')
        e = closed_raw(s, at + 1, s.script);
    else if (quote == '\'' && s.lang != Lang::kPython && !s.script)
        e = char_literal(s, at);
    else
        e = closed_in_line(s, at + 1, quote);
    s.last = e;
    return e;
}
std::size_t closed_in_line(const Code& s, std::size_t e, char quote) const {
    static constexpr CharSet kDouble = char_set("\"\\\n\r");
    static constexpr CharSet kSingle = char_set("'\\\n\r");
    const CharSet& stop = quote == '"' ? kDouble : kSingle;
    for (;;) {
        e = find(e, s.end, stop);
        if (e >= s.end) return s.end;
        if (t_[e] == quote) return e + 1;
        if (t_[e] != '\\') return e;  // not closed: the line ends it
        e = std::min(s.end, e + 2);
    }
}
std::size_t closed_by_three(const Code& s, std::size_t e, char quote) const {
    static constexpr CharSet kStop = char_set("\"'\\");
    for (;;) {
        e = find(e, s.end, kStop);
        if (e >= s.end) return s.end;
        if (t_[e] == '\\') {
            e = std::min(s.end, e + 2);
        } else if (t_[e] == quote && e + 2 < s.end && t_[e + 1] == quote && t_[e + 2] == quote) {
            return e + 3;
        } else {
            ++e;
        }
    }
}
std::size_t closed_by_itself(const Code& s, std::size_t e, char quote) const {
    for (;;) {
        const void* hit = e < s.end ? std::memchr(t_ + e, quote, s.end - e) : nullptr;
        if (hit == nullptr) return s.end;
        e = static_cast<std::size_t>(static_cast<const char*>(hit) - t_);
        if (e + 1 >= s.end || t_[e + 1] != quote) return e + 1;
        e += 2;
    }
}
std::size_t closed_raw(const Code& s, std::size_t e, bool escapes) const {
    static constexpr CharSet kStop = char_set("`\\");
    for (;;) {
        e = find(e, s.end, kStop);
        if (e >= s.end) return s.end;
        if (t_[e] == '`') return e + 1;
        e = std::min(s.end, e + (escapes ? 2 : 1));
    }
}
// 'x', '\n', '\x41'; otherwise (a lifetime, a digit separator) the quote alone.
std::size_t char_literal(const Code& s, std::size_t at) const {
    std::size_t e = at + 1;
    if (e < s.end && t_[e] == '\\') {
        e += 2;
        for (int i = 0; i < 10 && e < s.end; ++i, ++e)
            if (t_[e] == '\'') return e + 1;
        return at + 1;
    }
    if (e >= s.end) return at + 1;
    const auto c = static_cast<unsigned char>(t_[e]);
    e += c < 0xC0 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    return e < s.end && t_[e] == '\'' ? e + 1 : at + 1;
}
// Comments are no content; what stood before them is.
void before_comment(Code& s, std::size_t at) {
    if (Group* g = s.top(); g != nullptr && !g->content) g->content = !blank(s.last, at);
}
std::size_t line_comment(Code& s, std::size_t at) {
    before_comment(s, at);
    return s.last = find(at, s.end, kLineSet);
}
std::size_t block_comment(Code& s, std::size_t at) {
    before_comment(s, at);
    const std::size_t close = std::string_view(t_, s.end).find("*/", at + 2);
    return s.last = close == std::string_view::npos ? s.end : close + 2;
}
// #include is an import; any directive is skipped with its continued lines.
std::size_t directive(Code& s, std::size_t at) {
    std::size_t b = at + 1;
    while (b < s.end && (t_[b] == ' ' || t_[b] == '\t')) ++b;
    const std::string_view rest(t_ + b, s.end - b);
    if (rest.starts_with("include") && (rest.size() == 7 || !is_ident(rest[7])))
        leaf(Kind::kImport, at, b + 7);
    for (std::size_t e = at;;) {
        e = find(e, s.end, kLineSet);
        if (e >= s.end || t_[e - 1] != '\\') return s.last = e;
        if (t_[e] == '\r' && e + 1 < s.end && t_[e + 1] == '\n') ++e;
        ++e;
    }
}

#endif
