// Part of class Scanner (scanner.h): lines, tags and fences. docs/formats/skeleton.md §3 and §4.
#ifndef ZH_SKELETON_SCANNER_BODY
#pragma once
#else

static constexpr std::size_t kWindow = 4096;  // bytes the sweep runs ahead

void text_block() {
    open_count_ = 0;
    const std::string_view text(t_, n_);
    if (!template_ && may_be_code(text)) {
        const Lang lang = detect_language(text, true);
        if (lang != Lang::kPlain) {
            code_block(0, 0, n_, n_, lang, 0, 0);
            return;
        }
    }
    for (std::size_t at = 0; at < n_;) {
        if (at >= swept_) sweep(at + kWindow);
        at = line(at);
    }
    while (open_count_ > 0) close_rest();
}

// At a line's start, or right after a tag: reads to the end of the line or past the next tag.
std::size_t line(std::size_t at) {
    std::size_t p = at;
    while (p < n_ && (t_[p] == ' ' || t_[p] == '\t')) ++p;
    if (p == n_) return n_;
    switch (t_[p]) {
        case '\n':
        case '\r':
            return p + 1;
        case '<': {
            const std::size_t after = tag(p);
            if (after != 0) return after;
            mark_text(p);
            return rest_of_line(p + 1, true);
        }
        case '#':
            return heading(p);
        case '-':
        case '*':
        case '+':
            if (p + 1 < n_ && (t_[p + 1] == ' ' || t_[p + 1] == '\t'))
                return list_item(p, 0, p + 2);
            break;
        case '0':
        case '1':
        case '2':
        case '3':
        case '4':
        case '5':
        case '6':
        case '7':
        case '8':
        case '9': {
            std::size_t e = p + 1;
            while (e < n_ && e - p < 4 && t_[e] >= '0' && t_[e] <= '9') ++e;
            if (e < n_ && (t_[e] == '.' || t_[e] == ')') &&
                (e + 1 == n_ || t_[e + 1] == ' ' || t_[e + 1] == '\t'))
                return list_item(p, 1, e + 1);
            break;
        }
        case '>':
            if (strict_ && open_count_ > 0) break;  // element content: reported as raw
            if (!leaf_is(Kind::kQuote)) leaf(Kind::kQuote, p, p + 1);
            return rest_of_line(p + 1, false);
        case '|': {
            std::size_t after = 0;
            if (table_row(p, after)) return after;
            break;
        }
        case '`':
        case '~': {
            std::size_t after = 0;
            if (fence(p, after)) return after;
            break;
        }
        case '{':
        case '[': {
            std::size_t after = 0;
            if (p >= json_floor_ && json_line(p, after)) return after;
            break;
        }
        default:
            break;
    }
    // An indented line right after an item belongs to it.
    if (p - at >= 2 && leaf_is(Kind::kList)) return rest_of_line(p, false);
    mark_text(p);
    return rest_of_line(p, true);
}

std::size_t heading(std::size_t p) {
    std::size_t e = p;
    while (e < n_ && t_[e] == '#' && e - p < 7) ++e;
    const std::size_t level = e - p;
    if (level <= 6 && e < n_ && (t_[e] == ' ' || t_[e] == '\t')) {
        leaf(Kind::kHeading, p, e).sub = static_cast<std::uint8_t>(level);
        return rest_of_line(e, false);
    }
    mark_text(p);
    return rest_of_line(p, true);
}

std::size_t list_item(std::size_t p, std::uint8_t kind, std::size_t content) {
    if (!leaf_is(Kind::kList) || a_.nodes[leaf_].sub != kind)
        leaf(Kind::kList, p, content).sub = kind;
    ++a_.nodes[leaf_].count;
    return rest_of_line(std::min(content, n_), false);
}

bool table_row(std::size_t p, std::size_t& after) {
    if (!leaf_is(Kind::kTable)) {
        std::size_t bars = 0;
        std::size_t last = 0;  // last byte that is no space
        bool last_bar = false;
        std::size_t e = p;
        for (; e < n_ && (cls(t_[e]) & kNewline) == 0 && t_[e] != '<'; ++e) {
            const bool bar = t_[e] == '|' && (e == p || t_[e - 1] != '\\');
            bars += bar ? 1 : 0;
            if (t_[e] != ' ' && t_[e] != '\t') {
                last = e;
                last_bar = bar;
            }
        }
        const std::size_t columns = last_bar ? bars - 1 : bars;
        if (bars < 2 || columns < 1) return false;
        leaf(Kind::kTable, p, last + 1).columns =
            static_cast<std::uint16_t>(std::min<std::size_t>(columns, 0xFFFF));
    }
    ++a_.nodes[leaf_].count;
    after = rest_of_line(p, false);
    return true;
}

bool json_line(std::size_t p, std::size_t& after) {
    if (p + 1 >= n_) return false;
    std::size_t end = 0;
    const std::uint32_t kept = leaf_;
    if (!json_node(p, n_, end)) {
        leaf_ = kept;
        return false;
    }
    std::size_t e = end;
    while (e < n_ && (t_[e] == ' ' || t_[e] == '\t')) ++e;
    if (e < n_ && (cls(t_[e]) & kNewline) == 0 && t_[e] != '<') {
        a_.shapes.resize_down(a_.nodes.back().name);
        a_.nodes.resize_down(a_.nodes.size() - 1);
        leaf_ = kept;
        json_floor_ = end;
        return false;
    }
    if (strict_ && open_count_ > 0)
        for (std::size_t i = p; i < end; ++i) {
            if (t_[i] == '<') report(Problem::kRawLess, i);
            if (t_[i] == '>') report(Problem::kRawGreater, i);
            if (t_[i] == '&' && !entity(i)) report(Problem::kRawAmpersand, i);
        }
    after = e;
    return true;
}

// To the end of the line, or past the first tag in it. `mark`: other characters are text.
std::size_t rest_of_line(std::size_t at, bool mark) {
    for (;;) {
        const std::size_t e = next_event(at, mark);
        if (e == n_) return n_;
        switch (t_[e]) {
            case '\n':
            case '\r':
                return e + 1;
            case '<': {
                const std::size_t after = tag(e);
                if (after != 0) return after;
                if (mark) mark_text(e);
                break;
            }
            case '>':
                if (open_count_ > 0) report(Problem::kRawGreater, e);
                break;
            default:
                if (open_count_ > 0 && !entity(e)) report(Problem::kRawAmpersand, e);
                break;
        }
        at = e + 1;
    }
}

// --- tags ---------------------------------------------------------------------------------------
bool entity(std::size_t at) const {
    const std::string_view text(t_ + at, std::min<std::size_t>(n_ - at, 12));
    for (const std::string_view known : {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"})
        if (text.starts_with(known)) return true;
    if (!text.starts_with("&#")) return false;
    std::size_t i = 2;
    const bool hex = i < text.size() && text[i] == 'x';
    if (hex) ++i;
    const std::size_t first = i;
    while (i < text.size() && ((text[i] >= '0' && text[i] <= '9') ||
                               (hex && (text[i] | 32) >= 'a' && (text[i] | 32) <= 'f')))
        ++i;
    return i > first && i < text.size() && text[i] == ';';
}

// Reads the tag at `at`; the place after it, or 0 when it is text.
std::size_t tag(std::size_t at) {
    const char c = at + 1 < n_ ? t_[at + 1] : '\0';
    if (c == '/') return close_tag(at);
    if (c == '!') return comment(at);
    if ((cls(c) & kNameStart) == 0 || at + 1 >= n_) return raw(at, Problem::kRawLess);
    std::size_t e = at + 2;
    const std::size_t stop = std::min(n_, at + 66);
    while (e < stop && (cls(t_[e]) & kNameChar) != 0) ++e;
    const std::string_view name(t_ + at + 1, e - at - 1);
    bool empty = false;
    if (name.size() > 64 || !attributes(e, empty)) return raw(at, Problem::kIllegalTag);
    if (name == "semantic_anchor") return anchor(at, e, empty);
    if (open_count_ == kMaxOpenTags && !empty) return raw(at, Problem::kTooDeep);
    const std::size_t node = container(Kind::kTag, at);
    Node& n = a_.nodes[node];
    n.name = static_cast<std::uint32_t>(at + 1);
    n.name_size = static_cast<std::uint32_t>(name.size());
    n.content_begin = n.content_end = n.end = static_cast<std::uint32_t>(e);
    if (!empty) open_[open_count_++] = {static_cast<std::uint32_t>(node), name};
    return e;
}
std::size_t raw(std::size_t at, Problem problem) {
    if (strict_ && (open_count_ > 0 || problem != Problem::kRawLess)) report(problem, at);
    return 0;
}
// From the end of a tag's name: moves `at` past its ">". A "<" before that: no tag.
bool attributes(std::size_t& at, bool& empty) const {
    std::size_t e = at;
    if (e < n_ && t_[e] != '>' && t_[e] != '/' && !is_space(t_[e])) return false;
    char quote = '\0';
    for (; e < n_; ++e) {
        const char c = t_[e];
        if (c == '<') return false;
        if (quote != '\0') {
            if (c == quote) quote = '\0';
        } else if (c == '"' || c == '\'') {
            quote = c;
        } else if (c == '>') {
            empty = t_[e - 1] == '/';
            at = e + 1;
            return true;
        }
    }
    return false;
}
std::size_t comment(std::size_t at) {
    const std::string_view text(t_, n_);
    if (no_comment_close_ || text.substr(at, 4) != "<!--") return raw(at, Problem::kRawLess);
    const std::size_t close = text.find("-->", at + 4);
    if (close == std::string_view::npos) {
        no_comment_close_ = true;
        return raw(at, Problem::kIllegalTag);
    }
    leaf_ = kNone;
    return close + 3;
}
std::size_t close_tag(std::size_t at) {
    std::size_t e = at + 2;
    const std::size_t stop = std::min(n_, at + 67);
    if (e >= n_ || (cls(t_[e]) & kNameStart) == 0) return raw(at, Problem::kRawLess);
    while (e < stop && (cls(t_[e]) & kNameChar) != 0) ++e;
    const std::string_view name(t_ + at + 2, e - at - 2);
    e = skip_space(e, n_);
    if (name.size() > 64 || e >= n_ || t_[e] != '>') return raw(at, Problem::kIllegalTag);
    for (std::size_t k = open_count_; k-- > 0;) {
        if (open_[k].name != name) continue;
        while (open_count_ > k + 1) dissolve();
        Node& n = a_.nodes[open_[--open_count_].node];
        n.content_end = static_cast<std::uint32_t>(at);
        n.end = static_cast<std::uint32_t>(e + 1);
        n.next = static_cast<std::uint32_t>(a_.nodes.size());
        leaf_ = kNone;
        return e + 1;
    }
    if (strict_) report(Problem::kStrayClose, at);
    mark_text(at);
    leaf_ = kNone;
    return e + 1;
}
// The innermost open tag is text: its children are its parent's.
void dissolve() {
    Node& n = a_.nodes[open_[--open_count_].node];
    n.kind = Kind::kDissolved;
    n.next = open_[open_count_].node + 1;
    if (strict_) report(Problem::kUnclosedTag, n.begin);
}
// The block has ended with tags open.
void close_rest() {
    const Open& last = open_[open_count_ - 1];
    if (template_ && open_count_ == 1 && last.name == "assistant") {
        Node& n = a_.nodes[last.node];
        n.content_end = n.end = static_cast<std::uint32_t>(n_);
        n.next = static_cast<std::uint32_t>(a_.nodes.size());
        --open_count_;
        return;
    }
    dissolve();
}
std::size_t anchor(std::size_t at, std::size_t content, bool empty) {
    static constexpr std::string_view kClose = "</semantic_anchor";
    const std::string_view text(t_, n_);
    std::size_t close = content;
    std::size_t after = content;
    if (!empty) {
        if (no_anchor_close_) return raw(at, Problem::kUnclosedTag);
        for (std::size_t from = content;;) {
            close = text.find(kClose, from);
            if (close == std::string_view::npos) {
                no_anchor_close_ = true;
                return raw(at, Problem::kUnclosedTag);
            }
            after = skip_space(close + kClose.size(), n_);
            if (after < n_ && t_[after] == '>') break;
            from = close + kClose.size();
        }
        ++after;
    }
    Node& n = leaf(Kind::kAnchor, at, after);
    std::size_t b = content;
    std::size_t e = close;
    while (b < e && is_space(t_[b])) ++b;
    while (e > b && is_space(t_[e - 1])) --e;
    n.name = static_cast<std::uint32_t>(b);
    n.name_size = static_cast<std::uint32_t>(e - b);
    n.content_begin = static_cast<std::uint32_t>(content);
    n.content_end = static_cast<std::uint32_t>(close);
    leaf_ = kNone;
    return after;
}

// --- fences -------------------------------------------------------------------------------------
bool fence(std::size_t p, std::size_t& after) {
    const char mark = t_[p];
    std::size_t e = p;
    while (e < n_ && t_[e] == mark) ++e;
    const std::size_t size = e - p;
    if (size < 3) return false;
    const std::size_t far = std::min(n_, e + 256);  // bounded: a line may hold many marks
    const std::size_t eol = find(e, far, kLineSet);
    if (eol == far && far < n_) return false;
    if (mark == '`' && std::string_view(t_ + e, eol - e).find('`') != std::string_view::npos)
        return false;
    while (e < eol && is_space(t_[e])) ++e;
    std::size_t word = e;
    while (word < eol && !is_space(t_[word]) && t_[word] != '{' && t_[word] != ',') ++word;
    const std::size_t begin = std::min(n_, eol + 1);
    std::size_t end = n_;
    after = n_;
    if (!fence_close(begin, mark, size, end, after) && strict_) report(Problem::kUnclosedFence, p);
    std::string_view shown;
    Lang lang = Lang::kPlain;
    if (word > e)
        lang = lang_from_tag(std::string_view(t_ + e, word - e), shown);
    else
        lang = detect_language(std::string_view(t_ + begin, end - begin), false);
    code_block(p, begin, end, after, lang, e, word - e);
    return true;
}
// A line of `size` or more marks and nothing else. Its start and the place after it.
bool fence_close(std::size_t from, char mark, std::size_t size, std::size_t& start,
                 std::size_t& after) const {
    const std::string_view text(t_, n_);
    const char three[3] = {mark, mark, mark};
    for (std::size_t at = from; at < n_;) {
        const std::size_t q = text.find(three, at, 3);
        if (q == std::string_view::npos) return false;
        std::size_t e = q + 3;
        while (e < n_ && t_[e] == mark) ++e;
        std::size_t b = q;
        while (b > at && (t_[b - 1] == ' ' || t_[b - 1] == '\t')) --b;
        const bool at_start = b == from || (b > 0 && (cls(t_[b - 1]) & kNewline) != 0);
        std::size_t rest = e;
        while (rest < n_ && (t_[rest] == ' ' || t_[rest] == '\t')) ++rest;
        if (at_start && e - q >= size && (rest == n_ || (cls(t_[rest]) & kNewline) != 0)) {
            start = b;
            after = std::min(n_, rest + 1);
            return true;
        }
        at = e;
    }
    return false;
}
void code_block(std::size_t p, std::size_t begin, std::size_t end, std::size_t after, Lang lang,
                std::size_t name, std::size_t name_size) {
    const std::size_t node = container(Kind::kCodeBlock, p);
    Node& n = a_.nodes[node];
    n.sub = static_cast<std::uint8_t>(lang);
    n.name = static_cast<std::uint32_t>(name);
    n.name_size = static_cast<std::uint32_t>(name_size);
    n.content_begin = static_cast<std::uint32_t>(begin);
    n.content_end = static_cast<std::uint32_t>(end);
    n.end = static_cast<std::uint32_t>(after);
    if (lang == Lang::kJson) {
        for (std::size_t at = skip_space(begin, end); at < end; at = skip_space(at, end)) {
            std::size_t stop = 0;
            if (!json_node(at, end, stop)) break;
            at = stop;
        }
    } else if (lang != Lang::kPlain && lang != Lang::kOther) {
        code(begin, end, lang);
    }
    finish(node);
}

#endif
