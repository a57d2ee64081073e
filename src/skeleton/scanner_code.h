// Part of class Scanner (scanner.h): functions, classes and imports of one language.
// docs/formats/skeleton.md §6. The scanner stops at events only: the language's punctuation and the
// words that begin like one of its keywords; what lies between two events is looked at when asked
// for.
#ifndef ZH_SKELETON_SCANNER_BODY
#pragma once
#else

static constexpr std::size_t kGroups = 64;  // open brackets that are tracked

struct Group {  // no initializers: 64 of them are not cleared for each block of code
    char type;
    bool callable;  // a name stands before it
    bool params;    // a function keyword claimed it
    bool receiver;  // Go: right after func
    bool replace;   // Go: the real parameters after a receiver
    bool content;   // something since the last comma
    std::uint16_t angle;
    std::uint32_t commas;
    std::size_t open;
};
static Group group_of(char type, std::size_t open) {
    return {type, false, false, false, false, false, 0, 0, open};
}

struct Code {
    std::size_t begin = 0;
    std::size_t end = 0;
    Lang lang = Lang::kPlain;
    const LangSpec* spec = nullptr;
    bool c_like = false;   // C, C++, Java, JavaScript, TypeScript: a name, a group and a body
    bool preproc = false;  // C, C++
    bool script = false;   // JavaScript, TypeScript

    std::array<Group, kGroups> groups;
    std::size_t depth = 0;
    std::uint32_t over = 0;    // brackets opened beyond kGroups
    std::uint32_t braces = 0;  // open { among the groups
    bool candidate = false;    // a group was closed and a body may follow
    bool callable = false;
    bool locked = false;
    std::uint32_t params = 0;
    bool function = false;   // a function keyword waits for its (
    std::int32_t angle = 0;  // < > open since that keyword
    std::size_t function_end = 0;
    std::int32_t class_depth = -1;  // ≥ 0: a class keyword waits for its {
    bool go_type = false;
    bool go_after = false;  // a receiver (or parameters) was just closed
    std::size_t go_node = 0;
    bool sql_create = false;
    std::size_t last = 0;  // end of the last event that is no word

    Group* top() { return depth > 0 && over == 0 ? &groups[depth - 1] : nullptr; }
    void touch() {
        if (Group* g = top()) g->content = true;
    }
    void drop_candidate() { candidate = locked = false; }
};

void code(std::size_t begin, std::size_t end, Lang lang) {
    Code s;
    s.begin = s.last = begin;
    s.end = end;
    s.lang = lang;
    s.spec = &spec_of(lang);
    s.script = lang == Lang::kJavaScript || lang == Lang::kTypeScript;
    s.preproc = lang == Lang::kC || lang == Lang::kCpp;
    s.c_like = s.script || s.preproc || lang == Lang::kJava;
    // Block by block; `from` is where the last token ended, which may be blocks away.
    std::size_t from = begin;
    for (std::size_t base = begin; base < end; base = begin + ((from - begin) & ~std::size_t{63})) {
        const Events e = events_of(s, base);
        std::uint64_t m = (e.words | e.marks) & (~std::uint64_t{0} << (from - base));
        if (end - base < 64) m &= (std::uint64_t{1} << (end - base)) - 1;
        from = base + 64;
        while (m != 0) {
            const std::uint64_t bit = m & (~m + 1);
            if ((bit & e.resets) != 0) {
                m &= ~reset(s, base, e, m);
                continue;
            }
            const std::size_t at = base + static_cast<std::size_t>(std::countr_zero(m));
            const std::size_t after = (bit & e.words) != 0 ? word(s, at, base, e)
                                      : t_[at] == '('      ? open_paren(s, at, base, e, m ^ bit)
                                                           : punctuation(s, at, t_[at]);
            if (after - base >= 64) {
                from = after;
                break;
            }
            m &= ~std::uint64_t{0} << (after - base);
        }
    }
}
// What the scanner stops at in 64 bytes: words and marks; the rest says of what kind they are.
struct Events {
    std::uint64_t ident;
    std::uint64_t words;  // where they begin
    std::uint64_t marks;
    std::uint64_t commas;
    std::uint64_t colons;
    std::uint64_t semicolons;
    std::uint64_t resets;  // colons, semicolons and = but no =>
};
Events events_of(const Code& s, std::size_t base) const {
    const typename V::Bytes v = load(base);
    Events e;
    e.ident = V::in(v, kIdentSet) | V::high(v);
    const std::uint64_t carry = base > s.begin && is_ident(t_[base - 1]) ? 1 : 0;
    const std::uint64_t starts = e.ident & ~((e.ident << 1) | carry);
    const std::uint64_t second = (V::in(v, s.spec->second) >> 1) | (std::uint64_t{1} << 63);
    const std::uint64_t third = (V::in(v, s.spec->third) >> 2) | (std::uint64_t{3} << 62);
    e.marks = V::in(v, s.spec->events);
    e.words = starts & V::in(v, s.spec->first) & second & third;
    e.commas = V::equal(v, ',');
    e.colons = V::equal(v, ':');
    e.semicolons = V::equal(v, ';');
    std::uint64_t assigns = V::equal(v, '=');
    if (s.script) assigns &= ~((V::equal(v, '>') >> 1) | (std::uint64_t{1} << 63));
    e.resets = e.marks & (e.colons | e.semicolons | assigns);
    return e;
}
// The first events of m that are : or ; or =, at once: what waited for a body or a name waits no
// more, except that a colon alone keeps it from being replaced.
std::uint64_t reset(Code& s, std::size_t base, const Events& e, std::uint64_t m) {
    const std::uint64_t others = m & ~e.resets;
    const std::uint64_t run = m & ~others & (others - 1);
    const bool same_statement = (run & e.semicolons) == 0;
    const bool kept = (run & ~e.colons) == 0;
    s.function = s.function & same_statement;
    s.sql_create = s.sql_create & same_statement;
    s.go_type = s.go_type & kept;
    s.candidate = s.candidate & kept;
    s.locked = (s.locked | s.candidate) & kept;
    s.class_depth = kept ? s.class_depth : -1;
    s.go_after = false;
    s.touch();
    s.last = base + 64 - static_cast<std::size_t>(std::countl_zero(run));
    return run;
}
// The identifier that ends before / begins at a place of the block at `base`: its start / its end.
std::size_t ident_begin(const Code& s, std::size_t end, std::size_t base, const Events& e) const {
    if (end > base) {
        const std::size_t in_block = end - base;
        const auto run = static_cast<std::size_t>(std::countl_one(e.ident << (64 - in_block)));
        if (run < in_block) return std::max(s.last, end - run);
    }
    while (end > s.last && is_ident(t_[end - 1])) --end;
    return end;
}
std::size_t ident_end(const Code& s, std::size_t at, std::size_t base, const Events& e) const {
    const std::size_t in_block = at - base;
    const auto run = static_cast<std::size_t>(std::countr_one(e.ident >> in_block));
    if (in_block + run < 64) return std::min(s.end, at + run);
    const std::size_t stop = std::min(s.end, at + 15);  // no keyword is as long
    std::size_t end = at + 1;
    while (end < stop && is_ident(t_[end])) ++end;
    return end;
}

bool blank(std::size_t at, std::size_t end) const { return skip_space(at, end) == end; }
char next_char(const Code& s, std::size_t at) const {
    at = skip_space(at, s.end);
    return at < s.end ? t_[at] : '\0';
}
void function_def(Code& s, std::size_t at, std::uint32_t params) {
    leaf(Kind::kFunctionDef, at, at + 1).count = params;
    s.drop_candidate();
}

// --- words --------------------------------------------------------------------------------------
std::size_t word(Code& s, std::size_t at, std::size_t base, const Events& events) {
    s.touch();
    const std::size_t e = ident_end(s, at, base, events);
    const Keyword* k = e - at > 1 ? keyword(s, at, e - at) : nullptr;
    if (k == nullptr || (at > s.begin && t_[at - 1] == '.')) return e;
    const char next = next_char(s, e);
    const bool word_follows = is_ident(next);
    switch (k->act) {
        case Act::kFunctionName:
            if (!word_follows) break;
            [[fallthrough]];
        case Act::kFunction:
            s.function = true;
            s.angle = 0;
            s.function_end = e;
            s.go_after = false;
            break;
        case Act::kClassNow:
            if (word_follows) leaf(Kind::kClassDef, at, e);
            break;
        case Act::kClassBody:
            if (word_follows || next == '{') s.class_depth = static_cast<std::int32_t>(s.depth);
            break;
        case Act::kImport:
            leaf(Kind::kImport, at, e);
            break;
        case Act::kImportFirst:
            if (first_in_line(s, at)) leaf(Kind::kImport, at, e);
            break;
        case Act::kImportJs:
            if (next != '(' && next != '.') leaf(Kind::kImport, at, e);
            break;
        case Act::kRequire:
            if (e < s.end && t_[e] == '(') leaf(Kind::kImport, at, e);
            break;
        case Act::kLock:
            s.locked = s.candidate;
            break;
        case Act::kGoType:
            s.go_type = word_follows;
            break;
        case Act::kGoBody:
            if (s.go_type && next == '{') leaf(Kind::kClassDef, at, e);
            if (next == '{') s.go_type = false;
            break;
        case Act::kSqlCreate:
            s.sql_create = true;
            break;
        case Act::kSqlClass:
            if (s.sql_create) leaf(Kind::kClassDef, at, e);
            s.sql_create = false;
            break;
        case Act::kSqlFunction:
            s.function = s.function || s.sql_create;
            if (s.sql_create) s.angle = 0;
            s.sql_create = false;
            break;
    }
    return e;
}
const Keyword* keyword(const Code& s, std::size_t at, std::size_t size) const {
    const Keyword& k = s.spec->keywords[s.spec->slots[keyword_slot(t_[at], t_[at + 1])]];
    if (k.size != size) return nullptr;
    const char letter_case = s.spec->any_case ? 32 : 0;
    for (std::size_t i = 0; i < size; ++i)
        if ((t_[at + i] | letter_case) != k.text[i]) return nullptr;
    return &k;
}
bool first_in_line(const Code& s, std::size_t at) const {
    while (at > s.begin && (t_[at - 1] == ' ' || t_[at - 1] == '\t')) --at;
    return at == s.begin || (cls(t_[at - 1]) & kNewline) != 0;
}

// --- punctuation --------------------------------------------------------------------------------
std::size_t punctuation(Code& s, std::size_t at, char c) {
    switch (c) {
        case '"':
        case '\'':
        case '`':
            return string(s, at, c);
        case '/':
            if (at + 1 < s.end && t_[at + 1] == '/') return line_comment(s, at);
            if (at + 1 < s.end && t_[at + 1] == '*') return block_comment(s, at);
            break;
        case '-':
            if (at + 1 < s.end && t_[at + 1] == '-') return line_comment(s, at);
            break;
        case '#':
            if (!s.preproc) return line_comment(s, at);
            if (first_in_line(s, at)) return directive(s, at);
            break;
        case '[':
            s.touch();
            s.go_after = false;
            push_group(s, group_of('[', at));
            break;
        case '{':
            open_brace(s, at);
            break;
        case ')':
            close_paren(s, at);
            break;
        case ']':
            if (s.over > 0)
                --s.over;
            else if (s.depth > 0 && s.groups[s.depth - 1].type == '[')
                --s.depth;
            s.drop_candidate();
            break;
        case '}':
            close_brace(s);
            break;
        case ',':
            comma(s, at);
            s.last = at + 1;
            return at + 1;
        case '=':
            if (s.script && at + 1 < s.end && t_[at + 1] == '>') {
                function_def(s, at, s.candidate ? s.params : 1);
            } else {
                s.drop_candidate();
                s.class_depth = -1;
                s.go_type = false;
            }
            break;
        case '<':
            if (at > s.begin && is_ident(t_[at - 1])) {
                if (s.function)
                    ++s.angle;
                else if (Group* g = s.top(); g != nullptr && g->angle < 60000)
                    ++g->angle;
            }
            break;
        case '>':
            if (at > s.begin && t_[at - 1] != '-' && t_[at - 1] != '=') {
                if (s.function)
                    s.angle -= s.angle > 0 ? 1 : 0;
                else if (Group* g = s.top(); g != nullptr && g->angle > 0)
                    --g->angle;
            }
            break;
        default:
            break;
    }
    if (c != '[' && c != '{') s.touch();  // those touched the group around them
    if (c != ')') s.go_after = false;
    s.last = at + 1;
    return at + 1;
}

void push_group(Code& s, const Group& group) {
    if (s.over > 0 || s.depth == kGroups) {
        ++s.over;
        return;
    }
    s.groups[s.depth++] = group;
    s.braces += group.type == '{' ? 1 : 0;
}
// The name right before "(": an identifier with only white space between, since the last event.
bool named(const Code& s, std::size_t paren, std::size_t base, const Events& events) const {
    std::size_t e = paren;
    while (e > s.last && is_space(t_[e - 1])) --e;
    std::size_t b = ident_begin(s, e, base, events);
    if (b == e)
        return e == paren && e > s.begin && t_[e - 1] == '>' && s.last == e && s.lang != Lang::kC &&
               s.lang != Lang::kJavaScript;
    if (is_control_word(std::string_view(t_ + b, e - b))) return false;
    while (b > s.last && is_space(t_[b - 1])) --b;
    return !(b >= s.last + 3 && std::string_view(t_ + b - 3, 3) == "new" &&
             (b == s.last + 3 || !is_ident(t_[b - 4])));
}
// `rest`: the events after it in its block. A group of commas alone is read at once.
std::size_t open_paren(Code& s, std::size_t at, std::size_t base, const Events& e,
                       std::uint64_t rest) {
    Group g = paren_group(s, at, base, e);
    const std::uint64_t others = rest & ~e.commas;
    const std::size_t close = base + static_cast<std::size_t>(std::countr_zero(others));
    if (others == 0 || t_[close] != ')' || s.over > 0 || s.depth == kGroups) {
        push_group(s, g);
        return s.last = at + 1;
    }
    const std::uint64_t commas = rest & ~others & (others - 1);
    s.last = at + 1;
    if (commas != 0) {
        s.last = base + 64 - static_cast<std::size_t>(std::countl_zero(commas));
        g.commas = static_cast<std::uint32_t>(std::popcount(commas));
        if (!s.locked) s.drop_candidate();
    }
    close_group(s, g, close);
    return s.last = close + 1;
}
Group paren_group(Code& s, std::size_t at, std::size_t base, const Events& e) {
    s.touch();
    Group g = group_of('(', at);
    if (s.function && s.angle == 0) {
        g.params = true;
        s.function = false;
        g.receiver = s.lang == Lang::kGo && s.last <= s.function_end && blank(s.function_end, at);
    } else if (s.go_after && method_name(s, at)) {
        g.params = g.replace = true;
    } else if (s.c_like) {
        g.callable = s.class_depth < 0 && named(s, at, base, e);
        if (s.preproc) {
            g.callable = named(s, at, base, e);
            s.class_depth = -1;
        }
    }
    s.go_after = false;
    return g;
}
bool method_name(const Code& s, std::size_t paren) const {
    std::size_t b = skip_space(s.last, paren);
    const std::size_t first = b;
    while (b < paren && is_ident(t_[b])) ++b;
    return b > first && blank(b, paren);
}
void open_brace(Code& s, std::size_t at) {
    s.touch();
    if (s.class_depth >= 0) {
        leaf(Kind::kClassDef, at, at + 1);
        s.class_depth = -1;
        s.drop_candidate();
    } else if (s.candidate) {
        if (s.callable) function_def(s, at, s.params);
        s.drop_candidate();
    }
    s.function = s.go_type = false;
    push_group(s, group_of('{', at));
}
void close_brace(Code& s) {
    if (s.over > 0) {
        --s.over;
    } else if (s.braces > 0) {
        while (s.groups[--s.depth].type != '{') {
        }
        --s.braces;
    }
    s.drop_candidate();
    s.class_depth = -1;
    s.function = false;
}
void close_paren(Code& s, std::size_t at) {
    s.go_after = false;
    if (s.over > 0) {
        --s.over;
        s.drop_candidate();
        return;
    }
    if (s.depth == 0 || s.groups[s.depth - 1].type != '(') {
        s.drop_candidate();
        return;
    }
    close_group(s, s.groups[--s.depth], at);
}
void close_group(Code& s, const Group& g, std::size_t at) {
    const bool content = g.content || !blank(s.last, at);
    std::uint32_t count = g.commas + (content ? 1 : 0);
    if (s.preproc && count == 1 && only_void(g.open + 1, at)) count = 0;
    if (s.class_depth > static_cast<std::int32_t>(s.depth)) s.class_depth = -1;
    if (g.params) {
        if (g.replace)
            a_.nodes[s.go_node].count = count;
        else
            function_def(s, at, count);
        if (g.receiver) {
            s.go_after = true;
            s.go_node = a_.nodes.size() - 1;
        }
        s.drop_candidate();
    } else if (s.c_like && !s.locked) {
        s.candidate = true;
        s.callable = g.callable;
        s.params = count;
    }
}
bool only_void(std::size_t b, std::size_t e) const {
    b = skip_space(b, e);
    while (e > b && is_space(t_[e - 1])) --e;
    return e - b == 4 && std::string_view(t_ + b, 4) == "void";
}
void comma(Code& s, std::size_t at) {
    static_cast<void>(at);
    s.go_after = false;
    if (Group* g = s.top(); g != nullptr) {
        if (g->type == '(' && g->angle == 0) {
            ++g->commas;
            g->content = false;
        } else {
            g->content = true;
        }
    }
    if (!s.locked) s.drop_candidate();
}

#endif
