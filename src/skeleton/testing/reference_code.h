// Part of the reference (reference.h): code as a list of tokens, then the rules of
// docs/formats/skeleton.md §6 over that list.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "skeleton/languages.h"

namespace zerohop::skeleton::reference {

struct CodeNode {
    enum Kind { kFunction, kClass, kImport } kind = kFunction;
    std::uint32_t params = 0;
};

struct Token {
    enum Kind { kWord, kString, kEvent, kOther, kComment } kind = kOther;
    std::string_view text;
    std::size_t begin = 0;
    std::size_t end = 0;
    bool first_in_line = false;
};

inline bool is_ident(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || static_cast<unsigned char>(c) >= 128;
}

class Tokenizer {
  public:
    Tokenizer(std::string_view text, Lang lang)
        : t_(text), lang_(lang), events_(spec_of(lang).events) {}
    std::vector<Token> run() {
        std::size_t p = 0;
        bool first = true;
        while (p < t_.size()) {
            const char c = t_[p];
            if (in(c, " \t\n\r\f\v")) {
                if (in(c, "\n\r")) first = true;
                if (in(c, "\f\v")) first = false;
                ++p;
                continue;
            }
            Token token;
            token.begin = p;
            token.first_in_line = first;
            p = one(token, p);
            token.end = p;
            token.text = t_.substr(token.begin, p - token.begin);
            // A string or comment over several lines: what follows it on its last line is not
            // first.
            first = false;
            tokens_.push_back(token);
        }
        return std::move(tokens_);
    }

  private:
    static bool in(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }
    bool is(Lang a) const { return lang_ == a; }
    bool script() const { return is(Lang::kJavaScript) || is(Lang::kTypeScript); }
    bool preproc() const { return is(Lang::kC) || is(Lang::kCpp); }
    char at(std::size_t i) const { return i < t_.size() ? t_[i] : '\0'; }

    std::size_t one(Token& token, std::size_t p) {
        const char c = t_[p];
        if (is_ident(c)) {
            token.kind = Token::kWord;
            while (p < t_.size() && is_ident(t_[p])) ++p;
            return p;
        }
        token.kind = events_.has(c) ? Token::kEvent : Token::kOther;
        if (token.kind == Token::kOther) return p + 1;
        if (c == '/' && p + 1 < t_.size() && t_[p + 1] == '/')
            return token.kind = Token::kComment, line(p);
        if (c == '-' && p + 1 < t_.size() && t_[p + 1] == '-')
            return token.kind = Token::kComment, line(p);
        if (c == '/' && p + 1 < t_.size() && t_[p + 1] == '*') {
            token.kind = Token::kComment;
            const std::size_t e = t_.find("*/", p + 2);
            return e == std::string_view::npos ? t_.size() : e + 2;
        }
        if (c == '#' && !preproc()) return token.kind = Token::kComment, line(p);
        if (c == '#' && token.first_in_line) {
            token.kind = Token::kComment;
            for (;;) {
                p = line(p);
                if (p >= t_.size() || t_[p - 1] != '\\') return p;
                if (t_[p] == '\r' && at(p + 1) == '\n') ++p;
                ++p;
            }
        }
        if (in(c, "\"'`")) {
            token.kind = Token::kString;
            return string(p, c);
        }
        return p + 1;
    }
    std::size_t line(std::size_t p) const {
        while (p < t_.size() && !in(t_[p], "\n\r")) ++p;
        return p;
    }
    std::size_t string(std::size_t p, char q) const {
        if (is(Lang::kPython) && p + 2 < t_.size() && t_[p + 1] == q && t_[p + 2] == q) {
            for (p += 3; p < t_.size(); ++p) {
                if (t_[p] == '\\')
                    ++p;
                else if (t_[p] == q && p + 2 < t_.size() && t_[p + 1] == q && t_[p + 2] == q)
                    return p + 3;
            }
            return t_.size();
        }
        if (is(Lang::kSql)) {
            for (++p; p < t_.size(); ++p)
                if (t_[p] == q) {
                    if (p + 1 >= t_.size() || t_[p + 1] != q) return p + 1;
                    ++p;
                }
            return t_.size();
        }
        if (q == '`') {
            for (++p; p < t_.size(); ++p) {
                if (t_[p] == '\\' && script())
                    ++p;
                else if (t_[p] == '`')
                    return p + 1;
            }
            return t_.size();
        }
        if (q == '\'' && !is(Lang::kPython) && !script()) return literal(p);
        for (++p; p < t_.size(); ++p) {
            if (t_[p] == '\\')
                ++p;
            else if (t_[p] == q)
                return p + 1;
            else if (in(t_[p], "\n\r"))
                return p;
        }
        return t_.size();
    }
    std::size_t literal(std::size_t p) const {
        if (at(p + 1) == '\\' && p + 1 < t_.size()) {
            for (std::size_t e = p + 3; e < p + 13 && e < t_.size(); ++e)
                if (t_[e] == '\'') return e + 1;
            return p + 1;
        }
        if (p + 1 >= t_.size()) return p + 1;
        const auto c = static_cast<unsigned char>(t_[p + 1]);
        const std::size_t e = p + 1 + (c < 0xC0 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4);
        return e < t_.size() && t_[e] == '\'' ? e + 1 : p + 1;
    }

    std::string_view t_;
    Lang lang_;
    CharSet events_;
    std::vector<Token> tokens_;
};

class CodeReader {
  public:
    CodeReader(std::string_view text, Lang lang)
        : text_(text), lang_(lang), tokens_(Tokenizer(text, lang).run()) {}

    std::vector<CodeNode> run() {
        for (i_ = 0; i_ < tokens_.size(); ++i_) {
            const Token& t = tokens_[i_];
            if (t.kind == Token::kComment) {
                if (t.text[0] == '#' && preproc()) directive(t.text);
                continue;
            }
            const bool opens = t.text == "(" || t.text == "[" || t.text == "{";
            if (opens || t.kind == Token::kWord || t.kind == Token::kString ||
                t.kind == Token::kOther)
                touch();
            if (t.kind == Token::kWord) word(t);
            if (t.kind == Token::kString) go_after_ = false;
            if (t.kind == Token::kEvent) event(t);
        }
        return std::move(out_);
    }

  private:
    struct Group {
        char type = '(';
        bool callable = false, params = false, receiver = false, replace = false, content = false;
        int angle = 0;
        std::uint32_t commas = 0;
        std::size_t begin = 0;
    };
    bool is(Lang a) const { return lang_ == a; }
    bool script() const { return is(Lang::kJavaScript) || is(Lang::kTypeScript); }
    bool preproc() const { return is(Lang::kC) || is(Lang::kCpp); }
    bool c_like() const { return script() || preproc() || is(Lang::kJava); }
    Group* top() { return over_ == 0 && !groups_.empty() ? &groups_.back() : nullptr; }
    void touch() {
        if (top() != nullptr) top()->content = true;
    }
    void drop() { candidate_ = locked_ = false; }
    void function(std::uint32_t params) {
        out_.push_back({CodeNode::kFunction, params});
        drop();
    }
    void directive(std::string_view s) {
        s.remove_prefix(1);
        while (!s.empty() && (s[0] == ' ' || s[0] == '\t')) s.remove_prefix(1);
        if (s.starts_with("include") && (s.size() == 7 || !is_ident(s[7])))
            out_.push_back({CodeNode::kImport});
    }
    // The character after token i and white space ('\0' at the end).
    char next_char(std::size_t i) const {
        return i + 1 < tokens_.size() ? tokens_[i + 1].text[0] : '\0';
    }
    char char_before(const Token& t) const { return t.begin > 0 ? text_[t.begin - 1] : '\0'; }

    void word(const Token& t) {
        std::string w(t.text);
        if (is(Lang::kSql))
            for (char& c : w)
                if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
        if (t.begin > 0 && char_before(t) == '.') return;
        const char next = next_char(i_);
        const bool word_next = next != '\0' && is_ident(next);
        const auto one_of = [&w](std::initializer_list<std::string_view> list) {
            return std::find(list.begin(), list.end(), w) != list.end();
        };
        const bool fn = (is(Lang::kPython) && w == "def" && word_next) ||
                        (is(Lang::kRust) && w == "fn" && word_next) ||
                        (is(Lang::kGo) && w == "func") || (script() && w == "function");
        if (fn || (is(Lang::kSql) && sql_create_ && one_of({"function", "procedure"}))) {
            function_ = true;
            angle_ = 0;
            function_token_ = i_;
            if (fn) go_after_ = false;
            sql_create_ = false;
        } else if (is(Lang::kSql)) {
            if (w == "create") sql_create_ = true;
            if (one_of({"table", "view", "type"})) {
                if (sql_create_) out_.push_back({CodeNode::kClass});
                sql_create_ = false;
            }
        } else if ((is(Lang::kPython) && w == "class") ||
                   (is(Lang::kRust) && one_of({"struct", "enum", "trait"}))) {
            if (word_next) out_.push_back({CodeNode::kClass});
        } else if ((is(Lang::kC) && one_of({"struct", "union", "enum"})) ||
                   (is(Lang::kCpp) && one_of({"class", "struct", "union", "enum"})) ||
                   (is(Lang::kJava) && one_of({"class", "interface", "enum", "record"})) ||
                   (is(Lang::kJavaScript) && w == "class") ||
                   (is(Lang::kTypeScript) && one_of({"class", "interface", "enum"}))) {
            if (word_next || next == '{') class_depth_ = static_cast<int>(groups_.size());
        } else if ((one_of({"import"}) && (is(Lang::kJava) || is(Lang::kGo))) ||
                   (is(Lang::kRust) && w == "use") ||
                   (is(Lang::kPython) && one_of({"import", "from"}) && t.first_in_line) ||
                   (script() && w == "import" && next != '(' && next != '.') ||
                   (script() && w == "require" && t.end < text_.size() && text_[t.end] == '(')) {
            out_.push_back({CodeNode::kImport});
        } else if (is(Lang::kJava) && w == "throws") {
            locked_ = candidate_;
        } else if (is(Lang::kGo) && w == "type") {
            go_type_ = word_next;
        } else if (is(Lang::kGo) && one_of({"struct", "interface"}) && next == '{') {
            if (go_type_) out_.push_back({CodeNode::kClass});
            go_type_ = false;
        }
    }

    void event(const Token& t) {
        const char c = t.text[0];
        const bool opens = c == '(' || c == '[' || c == '{';
        const bool go_after = go_after_;
        go_after_ = false;
        const char before = char_before(t);
        switch (c) {
            case '(':
                open_paren(t, go_after);
                break;
            case '[':
                push({'[', false, false, false, false, false, 0, 0, t.begin});
                break;
            case '{':
                if (class_depth_ >= 0)
                    out_.push_back({CodeNode::kClass});
                else if (candidate_ && callable_)
                    function(params_);
                class_depth_ = -1;
                drop();
                function_ = go_type_ = false;
                push({'{', false, false, false, false, false, 0, 0, t.begin});
                break;
            case ')':
                close_paren(t);
                break;
            case ']':
                if (over_ > 0)
                    --over_;
                else if (!groups_.empty() && groups_.back().type == '[')
                    groups_.pop_back();
                drop();
                break;
            case '}': {
                const auto brace = std::find_if(groups_.rbegin(), groups_.rend(),
                                                [](const Group& g) { return g.type == '{'; });
                if (over_ > 0)
                    --over_;
                else if (brace != groups_.rend())
                    groups_.erase(brace.base() - 1, groups_.end());
                drop();
                class_depth_ = -1;
                function_ = false;
                break;
            }
            case ',':
                if (Group* g = top()) {
                    g->content = !(g->type == '(' && g->angle == 0);
                    g->commas += g->content ? 0 : 1;
                }
                if (!locked_) drop();
                return;
            case ';':
                drop();
                class_depth_ = -1;
                function_ = go_type_ = sql_create_ = false;
                break;
            case '=':
                if (script() && t.end < text_.size() && text_[t.end] == '>') {
                    function(candidate_ ? params_ : 1);
                } else {
                    drop();
                    class_depth_ = -1;
                    go_type_ = false;
                }
                break;
            case ':':
                locked_ = locked_ || candidate_;
                break;
            case '<':
                if (t.begin > 0 && is_ident(before)) {
                    if (function_)
                        ++angle_;
                    else if (top() != nullptr && top()->angle < 60000)
                        ++top()->angle;
                }
                break;
            case '>':
                if (t.begin > 0 && before != '-' && before != '=') {
                    if (function_)
                        angle_ = std::max(0, angle_ - 1);
                    else if (top() != nullptr && top()->angle > 0)
                        --top()->angle;
                }
                break;
            default:
                break;
        }
        if (!opens) touch();
    }
    void push(const Group& g) {
        if (over_ > 0 || groups_.size() == 64)
            ++over_;
        else
            groups_.push_back(g);
    }
    bool named() const {
        if (i_ == 0) return false;
        const Token& name = tokens_[i_ - 1];
        if (name.kind == Token::kEvent && name.text == ">" && name.end == tokens_[i_].begin)
            return !is(Lang::kC) && !is(Lang::kJavaScript);
        if (name.kind != Token::kWord || is_control_word(name.text)) return false;
        return !(i_ >= 2 && tokens_[i_ - 2].kind == Token::kWord && tokens_[i_ - 2].text == "new");
    }
    void open_paren(const Token& t, bool go_after) {
        Group g{'(', false, false, false, false, false, 0, 0, t.begin};
        if (function_ && angle_ == 0) {
            g.params = true;
            function_ = false;
            g.receiver = is(Lang::kGo) && i_ == function_token_ + 1;
        } else if (go_after && i_ >= 2 && tokens_[i_ - 1].kind == Token::kWord && method_gap()) {
            g.params = g.replace = true;
        } else if (c_like()) {
            g.callable = named() && (preproc() || class_depth_ < 0);
            if (preproc()) class_depth_ = -1;
        }
        push(g);
    }
    // Between the receiver's ")" (or a comment after it) and this "(" stands one word.
    bool method_gap() const {
        const Token& b = tokens_[i_ - 2];
        return b.kind == Token::kComment || b.text == ")";
    }
    void close_paren(const Token& t) {
        if (over_ > 0 || groups_.empty() || groups_.back().type != '(') {
            if (over_ > 0) --over_;
            drop();
            return;
        }
        const Group g = groups_.back();
        groups_.pop_back();
        std::uint32_t count = g.commas + (g.content ? 1 : 0);
        std::string_view inner = text_.substr(g.begin + 1, t.begin - g.begin - 1);
        const std::size_t first = inner.find_first_not_of(" \t\n\r\f\v");
        const std::size_t last = inner.find_last_not_of(" \t\n\r\f\v");
        if (preproc() && count == 1 && first != std::string_view::npos &&
            inner.substr(first, last - first + 1) == "void")
            count = 0;
        if (class_depth_ > static_cast<int>(groups_.size())) class_depth_ = -1;
        if (g.params) {
            if (g.replace) {
                out_[go_node_].params = count;
                drop();
            } else {
                function(count);
            }
            go_after_ = g.receiver;
            if (g.receiver) go_node_ = out_.size() - 1;
        } else if (c_like() && !locked_) {
            candidate_ = true;
            callable_ = g.callable;
            params_ = count;
        }
    }

    std::string_view text_;
    Lang lang_;
    std::vector<Token> tokens_;
    std::size_t i_ = 0;
    std::vector<CodeNode> out_;
    std::vector<Group> groups_;
    std::uint32_t over_ = 0;
    bool candidate_ = false, callable_ = false, locked_ = false;
    std::uint32_t params_ = 0;
    bool function_ = false;
    int angle_ = 0;
    std::size_t function_token_ = 0;
    int class_depth_ = -1;
    bool go_type_ = false, go_after_ = false, sql_create_ = false;
    std::size_t go_node_ = 0;
};

inline std::vector<CodeNode> read_code(std::string_view text, Lang lang) {
    return CodeReader(text, lang).run();
}

}  // namespace zerohop::skeleton::reference
