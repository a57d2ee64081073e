// The skeleton corpora, made by rule: the same bytes from the same seeds on every machine.
//
// A prompt is drawn from two streams of random numbers: `structure` decides what there is (tags,
// lists, tables, functions, parameters), `style` how it reads (words, names, numbers, spacing,
// comments). Two prompts of one structure and different styles must have one key; a prompt and its
// mutant must not. Used by corpus_test.cc (with the golden keys beside this file) and by the bench.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "skeleton/skeleton.h"

namespace zerohop::skeleton::corpus {

class Random {  // splitmix64: the same everywhere, unlike <random>'s distributions
  public:
    explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL + 0x1234567) {}
    std::uint64_t next() {
        std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
        return z ^ (z >> 31);
    }
    int upto(int n) { return static_cast<int>(next() % static_cast<std::uint64_t>(n)); }
    int between(int low, int high) { return low + upto(high - low + 1); }
    bool chance(int percent) { return upto(100) < percent; }
    template <std::size_t N>
    std::string_view pick(const std::array<std::string_view, N>& from) {
        return from[static_cast<std::size_t>(upto(static_cast<int>(N)))];
    }

  private:
    std::uint64_t state_;
};

inline constexpr std::array<std::string_view, 40> kWords = {
    "the",     "report", "shows",    "that",     "every",    "request", "should",  "return",
    "a",       "value",  "before",   "its",      "deadline", "when",    "service", "is",
    "under",   "load",   "and",      "we",       "compare",  "results", "with",    "earlier",
    "runs",    "of",     "same",     "workload", "please",   "explain", "which",   "part",
    "changed", "why",    "customer", "data",     "must",     "never",   "leave",   "region"};
inline constexpr std::array<std::string_view, 12> kChineseWords = {
    "请", "分析", "这段", "代码", "并且", "给出", "三个", "风险", "模型", "缓存", "结构", "延迟"};
inline constexpr std::array<std::string_view, 10> kArabicWords = {
    "مرحبا", "تحليل", "العقد", "هذا", "النص", "من", "فضلك", "قائمة", "المخاطر", "الخادم"};
inline constexpr std::array<std::string_view, 8> kEmojiWords = {"😀", "🚀", "🔥", "👩‍💻",
                                                                "🇩🇪", "✅", "📈", "🧪"};
inline constexpr std::array<std::string_view, 16> kStems = {
    "user", "input", "data",  "payload", "index", "buffer", "score", "total",
    "item", "cache", "state", "token",   "price", "weight", "order", "node"};

enum class Tongue { kEnglish, kChinese, kArabic, kEmoji };

// How things read.
struct Style {
    Random r;
    Tongue tongue = Tongue::kEnglish;
    explicit Style(std::uint64_t seed) : r(seed) {}

    std::string word() {
        switch (tongue) {
            case Tongue::kChinese:
                return std::string(r.pick(kChineseWords));
            case Tongue::kArabic:
                return std::string(r.pick(kArabicWords));
            case Tongue::kEmoji:
                return std::string(r.chance(30) ? r.pick(kEmojiWords) : r.pick(kWords));
            case Tongue::kEnglish:
                break;
        }
        return std::string(r.pick(kWords));
    }
    // One to three lines of prose; wraps anywhere.
    std::string prose(int least = 8, int most = 40) {
        std::string out = tongue == Tongue::kEnglish ? "Note" : word();
        const int n = r.between(least, most);
        for (int i = 0; i < n; ++i) {
            out += tongue == Tongue::kChinese ? "" : r.chance(6) ? "\n" : r.chance(5) ? "  " : " ";
            out += word();
            if (r.chance(5)) out += " " + std::to_string(r.upto(1000));
        }
        return out + (tongue == Tongue::kChinese ? "。" : ".");
    }
    std::string short_text() {
        std::string out = word();
        for (int i = r.between(1, 6); i > 0; --i) out += " " + word();
        return out;
    }
    std::string name() {
        std::string out(r.pick(kStems));
        if (r.chance(60)) out += "_" + std::string(r.pick(kStems));
        if (r.chance(30)) out += std::to_string(r.upto(100));
        return out + "_v";
    }
    std::string type_name() {
        std::string out(r.pick(kStems));
        out[0] = static_cast<char>(out[0] - 32);
        return out + std::to_string(r.upto(50)) + "Kind";
    }
    std::string gap() { return r.chance(30) ? "\n\n" : "\n"; }
    std::string space() { return r.chance(25) ? "  " : " "; }
    std::string opt() { return r.chance(25) ? " " : ""; }
    std::string comment(std::string_view mark) {
        return r.chance(35) ? std::string(mark) + " " + short_text() + " f(a, b) {\n" : "";
    }
    std::string stamp() {
        const auto two = [this](int low, int high) {
            const int v = r.between(low, high);
            return std::string(v < 10 ? "0" : "") + std::to_string(v);
        };
        return "20" + two(20, 30) + "-" + two(1, 12) + "-" + two(1, 28) + "T" + two(0, 23) + ":" +
               two(0, 59) + ":" + two(0, 59) + "Z";
    }
};

// --- functions in nine languages ----------------------------------------------------------------
inline constexpr std::array<std::string_view, 9> kLanguages = {
    "python", "javascript", "typescript", "c", "cpp", "java", "go", "rust", "sql"};

struct Shape {  // of a function: what must not get lost
    int params = 0;
    bool generic = false;  // a parameter whose type holds commas
    bool defaults = false;
    bool nested_call = false;
    int statements = 2;
};

inline std::string params(const Shape& f, Style& s, std::string_view lang) {
    std::string out;
    for (int i = 0; i < f.params; ++i) {
        if (i > 0) out += "," + s.space() + (s.r.chance(15) ? "\n    " : "");
        const std::string n = s.name();
        const bool generic = f.generic && i == 0;
        if (lang == "python")
            out += n + (generic ? ": dict[str, int]" : ": int") +
                   (f.defaults && i == f.params - 1 ? " = (1, 2)" : "");
        else if (lang == "javascript")
            out += generic ? "{" + n + ", b}"
                           : n + (f.defaults && i == f.params - 1 ? " = [1, 2]" : "");
        else if (lang == "typescript")
            out += n + (generic ? ": Map<string, number>" : ": number");
        else if (lang == "c")
            out += (generic ? "int (*" + n + ")(int, int)" : "int " + n);
        else if (lang == "cpp")
            out += (generic ? "std::map<int, int> " + n : "int " + n) +
                   (f.defaults && i == f.params - 1 ? " = 3" : "");
        else if (lang == "java")
            out += (generic ? "Map<String, Integer> " : "int ") + n;
        else if (lang == "go")
            out += n + (generic ? " func(int, int) int" : " int");
        else if (lang == "rust")
            out += n + (generic ? ": HashMap<u8, u8>" : ": i32");
        else
            out += n + (generic ? " numeric(10, 2)" : " int");
    }
    return out;
}
inline std::string body(const Shape& f, Style& s, std::string_view mark, std::string_view indent,
                        std::string_view end) {
    std::string out;
    for (int i = 0; i < f.statements; ++i) {
        if (s.r.chance(25))
            out += std::string(indent) + std::string(mark) + " " + s.short_text() + "\n";
        out += std::string(indent) + s.name() + " = " +
               (f.nested_call ? s.name() + s.opt() + "(" + s.name() + ", " +
                                    std::to_string(s.r.upto(99)) + ")"
                              : s.name() + " + " + std::to_string(s.r.upto(99))) +
               std::string(end) + "\n";
    }
    return out;
}
inline std::string function(std::string_view lang, const Shape& f, Style& s) {
    const std::string n = s.name();
    const std::string p = params(f, s, lang);
    const std::string brace = s.r.chance(30) ? "\n{\n" : s.space() + "{\n";
    const std::string_view mark = lang == "python" ? "#" : lang == "sql" ? "--" : "//";
    const std::string head = s.comment(mark);
    if (lang == "python")
        return head + "def " + s.opt() + n + s.opt() + "(" + p + ")" + s.opt() + ":\n" +
               body(f, s, mark, s.r.chance(50) ? "    " : "  ", "") + "    return None\n";
    if (lang == "javascript")
        return head + "function " + n + s.opt() + "(" + p + ")" + brace +
               body(f, s, mark, "  ", ";") + "}\n";
    if (lang == "typescript")
        return head + "function " + n + s.opt() + "(" + p + "): number" + brace +
               body(f, s, mark, "  ", ";") + "}\n";
    if (lang == "c")
        return head + "static int " + n + s.opt() + "(" + (f.params == 0 ? "void" : p) + ")" +
               brace + body(f, s, mark, "  ", ";") + "}\n";
    if (lang == "cpp")
        return head + "template <typename T>\nauto " + n + s.opt() + "(" + p +
               ") -> std::vector<T>" + brace + body(f, s, mark, "    ", ";") + "}\n";
    if (lang == "java")
        return head + "public static int " + n + s.opt() + "(" + p + ") throws IOException, Error" +
               brace + body(f, s, mark, "    ", ";") + "}\n";
    if (lang == "go")
        return head + "func " + n + "(" + p + ") (int, error)" + s.space() + "{\n" +
               body(f, s, mark, "\t", "") + "}\n";
    if (lang == "rust")
        return head + "pub fn " + n + "<'a, T: Into<String>>" + s.opt() + "(" + p +
               ") -> Option<T>" + brace + body(f, s, mark, "    ", ";") + "}\n";
    return head + "CREATE FUNCTION " + n + s.opt() + "(" + p + ") RETURNS int AS $$" + s.gap() +
           "SELECT " + s.name() + ", " + s.name() + " FROM " + s.name() + ";\n$$ LANGUAGE sql;\n";
}
inline std::string class_of(std::string_view lang, Style& s) {
    const std::string t = s.type_name();
    if (lang == "python") return "class " + t + ":\n    " + s.name() + " = 1\n";
    if (lang == "javascript" || lang == "typescript")
        return "class " + t + s.space() + "{\n  x = 1;\n}\n";
    if (lang == "c") return "struct " + t + s.space() + "{\n  int " + s.name() + ";\n};\n";
    if (lang == "cpp")
        return "class " + t + " : public Base" + s.space() + "{\n  int " + s.name() + ";\n};\n";
    if (lang == "java") return "public class " + t + " {\n  int " + s.name() + ";\n}\n";
    if (lang == "go") return "type " + t + " struct {\n\t" + s.name() + " int\n}\n";
    if (lang == "rust") return "struct " + t + " {\n    " + s.name() + ": i32,\n}\n";
    return "CREATE TABLE " + t + " (" + s.name() + " int, " + s.name() + " text);\n";
}
inline std::string import_of(std::string_view lang, Style& s) {
    if (lang == "python") return "import " + s.name() + "\n";
    if (lang == "javascript" || lang == "typescript")
        return "import " + s.name() + " from './" + s.name() + "';\n";
    if (lang == "c" || lang == "cpp") return "#include <" + s.name() + ".h>\n";
    if (lang == "java") return "import java.util." + s.type_name() + ";\n";
    if (lang == "go") return "import \"" + s.name() + "\"\n";
    if (lang == "rust") return "use std::" + s.name() + ";\n";
    return "";
}
inline Shape shape_of(Random& r) {
    Shape f;
    f.params = r.upto(7);
    f.generic = r.chance(40) && f.params > 0;
    f.defaults = r.chance(30);
    f.nested_call = r.chance(50);
    f.statements = r.between(1, 6);
    return f;
}
inline std::string code(std::string_view lang, Random& structure, Style& style, int functions) {
    std::string out;
    for (int i = structure.between(0, 2); i > 0; --i) out += import_of(lang, style);
    if (structure.chance(40)) out += class_of(lang, style);
    for (int i = 0; i < functions; ++i) {
        out += style.gap();
        out += function(lang, shape_of(structure), style);
    }
    return out;
}
// One function of the rename corpus: fenced with its language, fenced without, or bare.
inline std::string rename_case(int index, std::uint64_t style_seed) {
    Random structure(static_cast<std::uint64_t>(index) + 7000);
    Style style(style_seed);
    const std::string_view lang = kLanguages[static_cast<std::size_t>(index) % kLanguages.size()];
    const std::string text = code(lang, structure, style, structure.between(1, 3));
    switch (index / static_cast<int>(kLanguages.size()) % 3) {
        case 0:
            return "```" + std::string(lang) + "\n" + text + "```\n";
        case 1:
            return text;  // the whole message is code
        default:
            return "<code>\n```" + std::string(lang) + "\n" + text + "```\n</code>\n";
    }
}

// --- prompts ------------------------------------------------------------------------------------
struct Part {
    BlockKind kind = BlockKind::kText;
    std::string text;
    std::string name;
};
struct Turn {
    Role role = Role::kUser;
    std::vector<Part> parts;
};
struct Conversation {
    std::uint32_t tools = 0;
    std::vector<Turn> turns;
    std::size_t bytes() const {
        std::size_t n = 0;
        for (const Turn& t : turns)
            for (const Part& p : t.parts) n += p.text.size();
        return n;
    }
};
// A Prompt that points into a Conversation.
struct View {
    std::vector<std::vector<Block>> blocks;
    std::vector<Message> messages;
    Prompt prompt;
    explicit View(const Conversation& c) {
        for (const Turn& t : c.turns) {
            blocks.emplace_back();
            for (const Part& p : t.parts) blocks.back().push_back({p.kind, p.text, p.name});
        }
        for (std::size_t i = 0; i < c.turns.size(); ++i)
            messages.push_back({c.turns[i].role, blocks[i]});
        prompt = {c.tools, messages};
    }
    View(const View&) = delete;
    View& operator=(const View&) = delete;
};

inline constexpr std::array<std::string_view, 14> kKinds = {
    "chat",   "agent", "rag",     "code_review", "contract", "medical",   "logs",
    "tables", "json",  "chinese", "arabic",      "emoji",    "templates", "functions"};

inline std::string list(Style& s, int items, bool numbers) {
    std::string out;
    for (int i = 0; i < items; ++i)
        out += (numbers ? std::to_string(i + 1) + ". " : "- ") + s.short_text() + s.gap();
    return out;
}
inline std::string table(Style& s, int columns, int rows) {
    std::string out;
    for (int row = -1; row <= rows; ++row) {
        out += "|";
        for (int c = 0; c < columns; ++c)
            out += row == 0 ? "---|"
                            : s.opt() +
                                  (row > 0 && c > 0 ? std::to_string(s.r.upto(100000)) : s.word()) +
                                  s.opt() + "|";
        out += "\n";
    }
    return out;
}
inline std::string json_object(Random& structure, Style& s, int depth) {
    static constexpr std::array<std::string_view, 8> kKeys = {"id",   "name",   "path",  "values",
                                                              "meta", "status", "owner", "size"};
    std::string out = "{";
    const int n = structure.between(1, 5);
    for (int i = 0; i < n; ++i) {
        out += std::string(i > 0 ? ", " : "") + s.opt() + "\"" +
               std::string(kKeys[static_cast<std::size_t>(structure.upto(8))]) + "\":" + s.opt();
        const int what = structure.upto(depth > 0 ? 5 : 3);
        if (what == 0) out += std::to_string(s.r.upto(100000));
        if (what == 1) out += "\"" + s.short_text() + "\"";
        if (what == 2) out += s.r.chance(50) ? "true" : "false";
        if (what == 3) out += json_object(structure, s, depth - 1);
        if (what == 4) {
            out += "[";
            const int items = structure.between(1, 4);
            for (int k = 0; k < items; ++k)
                out += (k > 0 ? ", " : "") + std::to_string(s.r.upto(1000));
            out += "]";
        }
    }
    return out + "}";
}
inline std::string tagged(std::string_view tag, const std::string& inner, Style& s) {
    return "<" + std::string(tag) + ">" + s.opt() + inner + s.opt() + "</" + std::string(tag) +
           ">" + s.gap();
}

// `structure_seed` decides the structure, `style_seed` everything else; about `bytes` long where
// the kind can grow (0: its own size).
inline Conversation make(std::string_view kind, std::uint64_t structure_seed,
                         std::uint64_t style_seed) {
    Random structure(structure_seed * 31 + kind.size() * 1009 +
                     static_cast<unsigned char>(kind[0]));
    Style s(style_seed);
    Conversation c;
    const auto system = [&](std::string text) {
        c.turns.push_back({Role::kSystem, {{BlockKind::kText, std::move(text), ""}}});
    };
    const auto user = [&](std::string text) {
        c.turns.push_back({Role::kUser, {{BlockKind::kText, std::move(text), ""}}});
    };
    const auto assistant = [&](std::string text) {
        c.turns.push_back({Role::kAssistant, {{BlockKind::kText, std::move(text), ""}}});
    };
    const auto prose = [&] { return s.prose() + s.gap(); };
    if (kind == "chinese") s.tongue = Tongue::kChinese;
    if (kind == "arabic") s.tongue = Tongue::kArabic;
    if (kind == "emoji") s.tongue = Tongue::kEmoji;

    if (kind == "chat" || kind == "chinese" || kind == "arabic" || kind == "emoji") {
        if (structure.chance(60)) system(prose());
        for (int i = structure.between(1, 4); i > 0; --i) {
            std::string text = prose();
            if (structure.chance(40))
                text += list(s, structure.between(2, 6), structure.chance(50)) + prose();
            if (structure.chance(20)) text += "## " + s.short_text() + "\n" + prose();
            user(text);
            if (i > 1) assistant(prose());
        }
    } else if (kind == "agent") {
        c.tools = static_cast<std::uint32_t>(structure.between(3, 20));
        system("# " + s.short_text() + "\n" + prose() + list(s, structure.between(3, 9), false) +
               "# " + s.short_text() + "\n" + prose() +
               tagged("env", "Working directory: /srv/" + s.name() + "\nToday is " + s.stamp(), s));
        user(tagged("task", prose(), s));
        for (int i = structure.between(1, 4); i > 0; --i) {
            static constexpr std::array<std::string_view, 4> kTools = {"read_file", "bash",
                                                                       "edit_file", "search"};
            const std::string_view tool = kTools[static_cast<std::size_t>(structure.upto(4))];
            c.turns.push_back({Role::kAssistant,
                               {{BlockKind::kText, prose(), ""},
                                {BlockKind::kToolUse,
                                 "{\"path\":\"/srv/" + s.name() +
                                     "\",\"limit\":" + std::to_string(s.r.upto(500)) + "}",
                                 std::string(tool)}}});
            const std::string_view lang = kLanguages[static_cast<std::size_t>(structure.upto(8))];
            c.turns.push_back({Role::kUser,
                               {{BlockKind::kToolResult,
                                 "Result:\n```" + std::string(lang) + "\n" +
                                     code(lang, structure, s, structure.between(1, 3)) + "```\n",
                                 ""}}});
        }
    } else if (kind == "rag") {
        system(prose());
        std::string text;
        for (int i = structure.between(2, 6); i > 0; --i)
            text += "<document>" + s.opt() + tagged("source", s.name() + ".pdf", s) +
                    tagged("content", s.prose(30, 120), s) + "</document>" + s.gap();
        if (structure.chance(30))
            text += "<semantic_anchor>topic" + std::to_string(structure.upto(50)) +
                    "</semantic_anchor>\n";
        user("<documents>\n" + text + "</documents>\n" + prose());
    } else if (kind == "code_review") {
        system(prose() + list(s, structure.between(2, 5), true));
        std::string text = prose();
        for (int i = structure.between(1, 3); i > 0; --i) {
            const std::string_view lang = kLanguages[static_cast<std::size_t>(structure.upto(9))];
            text += "### " + s.name() + "\n```" + std::string(lang) + "\n" +
                    code(lang, structure, s, structure.between(1, 4)) + "```\n";
        }
        user(text + prose());
    } else if (kind == "contract") {
        std::string text = "<document_type>contract</document_type>\n<contract>\n";
        for (int i = structure.between(2, 7); i > 0; --i)
            text += "## " + s.short_text() + "\n" + prose() +
                    list(s, structure.between(1, 5), true) + prose();
        system(prose());
        user(text + "</contract>\n" + tagged("task", s.short_text(), s));
    } else if (kind == "medical") {
        std::string text = "<document_type>electronic_health_record</document_type>\n<record>\n";
        text += tagged("patient", s.short_text(), s) + tagged("history", prose(), s);
        text += table(s, structure.between(2, 5), structure.between(2, 8));
        if (structure.chance(50)) text += "> " + s.short_text() + "\n";
        user(text + "</record>\n" + prose());
    } else if (kind == "logs") {
        std::string text = prose() + "```log\n";
        for (int i = s.r.between(10, 40); i > 0; --i)
            text += s.stamp() + " INFO [" + s.name() + "] " + s.short_text() +
                    " took=" + std::to_string(s.r.upto(9999)) + "ms\n";
        user(text + "```\n" + prose());
    } else if (kind == "tables") {
        std::string text;
        for (int i = structure.between(1, 3); i > 0; --i)
            text += prose() + table(s, structure.between(2, 8), structure.between(3, 20));
        user(text + prose());
    } else if (kind == "json") {
        std::string text = prose();
        for (int i = structure.between(1, 3); i > 0; --i)
            text += json_object(structure, s, 3) + "\n" + prose();
        text += "```json\n" + json_object(structure, s, 4) + "\n```\n";
        user(text);
    } else if (kind == "templates") {
        system("<role>" + s.word() + "</role>\n" +
               tagged("rules", "\n" + list(s, structure.between(2, 8), false), s));
        std::string inner = prose();
        static constexpr std::array<std::string_view, 5> kTags = {"input", "context", "section",
                                                                  "example", "data"};
        for (int i = structure.between(1, 4); i > 0; --i)
            inner = tagged(kTags[static_cast<std::size_t>(structure.upto(5))], inner, s) + prose();
        user(inner + "<semantic_anchor>" + std::to_string(structure.upto(1000)) +
             "</semantic_anchor>");
    } else {  // functions
        const std::string_view lang = kLanguages[static_cast<std::size_t>(structure.upto(9))];
        user("```" + std::string(lang) + "\n" + code(lang, structure, s, structure.between(2, 6)) +
             "```\n");
    }
    return c;
}

// --- variants that must change the key ----------------------------------------------------------
inline constexpr std::array<std::string_view, 9> kMutations = {
    "other_tag",     "extra_parameter", "other_anchor", "other_language", "extra_column",
    "other_heading", "other_key",       "extra_turn",   "other_list"};
// A pair of texts that differ in one piece of structure, within the same surroundings.
inline std::pair<std::string, std::string> mutant(std::string_view mutation, std::uint64_t seed) {
    Random r(seed + 99);
    Style s(seed);
    const std::string before = s.prose() + "\n";
    const std::string after = "\n" + s.prose();
    std::string a;
    std::string b;
    const std::string_view lang = kLanguages[static_cast<std::size_t>(r.upto(9))];
    if (mutation == "other_tag") {
        a = "<input>" + s.prose() + "</input>";
        b = "<output>" + s.prose() + "</output>";
    } else if (mutation == "extra_parameter" || mutation == "other_language") {
        Shape f = shape_of(r);
        f.generic = false;
        std::string_view other = lang;
        const Shape same = f;
        if (mutation == "extra_parameter") ++f.params;
        if (mutation == "other_language")
            other = kLanguages[(static_cast<std::size_t>(r.upto(8)) + 1) % 9];
        if (mutation == "other_language" && other == lang) other = lang == "go" ? "rust" : "go";
        a = "```" + std::string(lang) + "\n" + function(lang, same, s) + "```";
        b = "```" + std::string(other) + "\n" + function(other, f, s) + "```";
    } else if (mutation == "other_anchor") {
        a = "<semantic_anchor>AAPL" + std::to_string(r.upto(1000)) + "</semantic_anchor>";
        b = "<semantic_anchor>MSFT" + std::to_string(r.upto(1000)) + "</semantic_anchor>";
    } else if (mutation == "extra_column") {
        const int columns = r.between(2, 6);
        a = table(s, columns, 3);
        b = table(s, columns + 1, 3);
    } else if (mutation == "other_heading") {
        a = "## " + s.short_text();
        b = "### " + s.short_text();
    } else if (mutation == "other_key") {
        a = "{\"a\": " + std::to_string(r.upto(100)) + "}";
        b = "{\"b\": " + std::to_string(r.upto(100)) + "}";
    } else if (mutation == "extra_turn") {
        a = "<turn>x</turn>";
        b = "<turn>x</turn><turn>y</turn>";
    } else {
        a = list(s, 3, true);
        b = list(s, 3, false);
    }
    return {before + a + after, before + b + after};
}

// --- hostile inputs of any size -----------------------------------------------------------------
inline constexpr std::array<std::string_view, 22> kHostile = {
    "less",   "nested",    "stray",      "quotes",     "fences",     "open_json",
    "spaces", "digits",    "dashes",     "anchors",    "comments",   "tag_in_line",
    "bars",   "backticks", "code_paren", "code_words", "code_angle", "untagged",
    "nul",    "invalid",   "attributes", "json_floor"};
inline std::string hostile(std::string_view kind, std::size_t bytes) {
    std::string unit;
    std::string head;
    if (kind == "less") unit = "<";
    if (kind == "nested") unit = "<a>";
    if (kind == "stray") {
        for (int i = 0; i < 64; ++i) head += "<tagname" + std::to_string(100 + i) + ">";
        unit = "</tagname000>";
    }
    if (kind == "quotes") unit = "<a \"<b '";
    if (kind == "fences") unit = "```\n``` x\n";
    if (kind == "open_json") unit = "{\"a\":[\n";
    if (kind == "spaces") unit = "        <a ";
    if (kind == "digits") unit = "1:11 1-";
    if (kind == "dashes") unit = "1-a-";
    if (kind == "anchors") unit = "<semantic_anchor></semantic_anchor x ";
    if (kind == "comments") unit = "<!-- ";
    if (kind == "tag_in_line") unit = "|<a/>```<a/>";
    if (kind == "bars") unit = "|\n";
    if (kind == "backticks") unit = "~~~~`\n```` ";
    if (kind == "code_paren") {
        head = "```cpp\n";
        unit = "( f(  ";
    }
    if (kind == "code_words") {
        head = "```js\n";
        unit = "new f   ";
    }
    if (kind == "code_angle") {
        head = "```rust\n";
        unit = "fn a<'<(";
    }
    if (kind == "untagged") unit = "```\nint x\n```\n";
    if (kind == "nul") unit = std::string(1, '\0');
    if (kind == "invalid") unit = "\xff\xc3";
    if (kind == "attributes") unit = "<a b='c' ";
    if (kind == "json_floor") unit = "[1,\"x\",[";
    std::string out = head;
    out.reserve(bytes + unit.size());
    while (out.size() < bytes) out += unit;
    out.resize(bytes);
    return out;
}

// A template as people write them first: the time and the caller's data at the top, rules below.
inline std::string badly_ordered_template(std::uint64_t seed) {
    Random r(seed + 4242);
    Style s(seed + 17);
    std::string out = "<system>\n";
    const int rules = r.between(3, 8);
    out += "You help with " + s.short_text() + ".\n\n";
    if (r.chance(70)) out += "Current time: " + s.stamp() + "\n\n";
    if (r.chance(60)) out += "The user's name is {user_name}.\n\n";
    if (r.chance(40)) out += "<context>\n{context}\n</context>\n\n";
    for (int i = 0; i < rules; ++i) out += "Rule: " + s.prose(10, 40) + "\n\n";
    if (r.chance(40))
        out += "<text>" + s.prose(5, 10) + "</text><text>" + s.prose(5, 10) + "</text>\n\n";
    if (r.chance(40)) out += "<notes><notes>" + s.prose(5, 10) + "</notes></notes>\n";
    out += "</system>\n<user>" + s.short_text() + ": {question}</user>\n<assistant>";
    return out;
}

// About `bytes` of one kind, one conversation after the other.
inline Conversation bulk(std::string_view kind, std::size_t bytes) {
    Conversation all;
    std::size_t size = 0;
    for (std::uint64_t i = 0; size < bytes; ++i) {
        Conversation c = make(kind, i, i + 500);
        size += c.bytes();
        for (Turn& t : c.turns) all.turns.push_back(std::move(t));
    }
    return all;
}
// The 4 KiB prompt of an agent: system, task, one call and its result, cut to size in its prose.
inline Conversation agent_4k(std::uint64_t seed) {
    Conversation c = make("agent", seed, seed + 1);
    std::size_t size = c.bytes();
    Style s(seed + 2);
    while (size < 4096 - 200) {
        const std::string more = s.prose(20, 40) + "\n";
        c.turns[0].parts[0].text += more;
        size += more.size();
    }
    while (size > 4096 && c.turns.size() > 2) {
        for (const Part& p : c.turns.back().parts) size -= p.text.size();
        c.turns.pop_back();
    }
    while (size < 4096) {
        const std::string more = s.prose(3, 6) + "\n";
        c.turns[0].parts[0].text += more;
        size += more.size();
    }
    return c;
}

}  // namespace zerohop::skeleton::corpus
