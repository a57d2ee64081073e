#include "skeleton/skeleton.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "skeleton/optimize.h"
#include "skeleton/skeleton_c.h"

namespace zerohop::skeleton {
namespace {

std::string closed(std::string_view text) {
    Arena arena;
    return std::string(analyze_text(text, arena).canonical);
}
std::string flat(std::string_view text) {
    Arena arena;
    return flat_form(analyze_text(text, arena));
}

TEST(Skeleton, TheArticlesExample) {
    const std::string code = "```python\ndef f(user_input, b, c):\n    return user_input\n```";
    EXPECT_EQ(closed(code), "[USER[CODE_BLOCK[PYTHON[FUNCTION_DEF[PARAMS:3]]]]]");
    EXPECT_EQ(flat(code), "[USER][CODE_BLOCK][PYTHON][FUNCTION_DEF][PARAMS:3]");
    // Renamed, with other comments and spacing; without a tag; and bare.
    const std::string other = "def  g ( payload,\n   x , y ) :  # h(a)\n\n    return payload\n";
    EXPECT_EQ(closed("```py\n" + other + "```"), closed(code));
    EXPECT_EQ(closed("```\n" + other + "```"), closed(code));
    EXPECT_EQ(closed(other), closed(code));
    Arena arena;
    EXPECT_EQ(analyze_text(code, arena).complexity, 5);
}

TEST(Skeleton, CountsStep) {
    const std::pair<std::uint32_t, std::uint32_t> steps[] = {{0, 0},
                                                             {1, 1},
                                                             {2, 2},
                                                             {3, 3},
                                                             {4, 3},
                                                             {5, 5},
                                                             {8, 5},
                                                             {9, 9},
                                                             {16, 9},
                                                             {17, 17},
                                                             {0xFFFFFFFF, 0x80000001}};
    for (const auto& [count, want] : steps) EXPECT_EQ(step(count), want) << count;
    EXPECT_EQ(closed("- a\n- b\n- c"), closed("- a\n\n* b\n+ c\n- d"));
    EXPECT_NE(closed("- a\n- b"), closed("- a\n- b\n- c"));
}

TEST(Skeleton, Lines) {
    EXPECT_EQ(closed("# a\ntext\n> q\n> r\n1. x\n2) y\n| a | b |\n|---|---|\n| 1 | 2 |\n"),
              "[USER[HEADING:1][TEXT][QUOTE][LIST:NUMBER:2][TABLE:2:3]]");
    EXPECT_EQ(closed("{\"a\": [1, 2, 3, 4], \"b\": {\"c\": \"x\", \"d\": null}}\n"),
              R"([USER[JSON:{"a":[n*3],"b":{"c":s,"d":z}}]])");
    EXPECT_EQ(closed("a\r\nb\rc\n"), "[USER[TEXT]]");
    EXPECT_EQ(closed(""), "[USER]");
    EXPECT_EQ(closed("[1] see the notes"), "[USER[TEXT]]");
}

TEST(Skeleton, Tags) {
    EXPECT_EQ(closed("<doc id=\"1\"><t>x</t> y </doc>"), "[USER[TAG:doc[TAG:t[TEXT]][TEXT]]]");
    EXPECT_EQ(closed("a <b c"), "[USER[TEXT]]");
    EXPECT_EQ(closed("<a><b>x</a>"), "[USER[TAG:a[TEXT]]]");
    EXPECT_EQ(closed("<a>x"), "[USER[TEXT]]");
    EXPECT_EQ(closed("<timestamp/>"), "[USER[TAG:timestamp]]");
    EXPECT_EQ(closed("<system>x</system>"), "[USER[TAG:system[TEXT]]]")
        << "never a role inside content";
    EXPECT_EQ(closed("<文档>x</文档>"), "[USER[TAG:文档[TEXT]]]");
}

TEST(Skeleton, AnchorsCount) {
    const std::string a = closed("<semantic_anchor>AAPL</semantic_anchor>");
    EXPECT_EQ(a, closed("<semantic_anchor> AAPL\n</semantic_anchor>"));
    EXPECT_NE(a, closed("<semantic_anchor>MSFT</semantic_anchor>"));
    EXPECT_EQ(closed("<ticker>AAPL</ticker>"), closed("<ticker>MSFT</ticker>"));
    EXPECT_EQ(flat("<semantic_anchor>AAPL</semantic_anchor>"), "[USER][SEMANTIC_ANCHOR:AAPL]");
}

TEST(Skeleton, CodeOfEachLanguage) {
    const auto in = [](std::string_view lang, std::string_view code) {
        return closed("```" + std::string(lang) + "\n" + std::string(code) + "\n```");
    };
    EXPECT_EQ(in("js",
                 "import a from 'a'; class A { m(a, b) { if (x) { } } } const f = async (x, {y, "
                 "z}) => x;"),
              "[USER[CODE_BLOCK[JAVASCRIPT[IMPORT][CLASS_DEF][FUNCTION_DEF[PARAMS:2]][FUNCTION_DEF["
              "PARAMS:2]]]]]");
    EXPECT_EQ(in("ts", "function f<T>(a: Map<string, T>, b?: number): void {}"),
              "[USER[CODE_BLOCK[TYPESCRIPT[FUNCTION_DEF[PARAMS:2]]]]]");
    EXPECT_EQ(in("c",
                 "#include <a.h>\nstruct s { int x; };\nint f(void) { while (1) { g(1, 2); } "
                 "}\nint proto(int a);"),
              "[USER[CODE_BLOCK[C[IMPORT][CLASS_DEF][FUNCTION_DEF[PARAMS:0]]]]]");
    EXPECT_EQ(in("cpp", "S::S(int a, std::map<int, int> b) : a_(a), b_(f(b, 1, 2)) {}"),
              "[USER[CODE_BLOCK[CPP[FUNCTION_DEF[PARAMS:2]]]]]");
    EXPECT_EQ(in("java",
                 "import x.Y; class A { int f(Map<A, B> m, int y) throws C, D { return g(new E(1) "
                 "{ }); } }"),
              "[USER[CODE_BLOCK[JAVA[IMPORT][CLASS_DEF][FUNCTION_DEF[PARAMS:2]]]]]");
    EXPECT_EQ(
        in("go", "import \"a\"\ntype T struct { x int }\nfunc (t *T) F(a, b int) (int, error) { }"),
        "[USER[CODE_BLOCK[GO[IMPORT][CLASS_DEF][FUNCTION_DEF[PARAMS:2]]]]]");
    EXPECT_EQ(in("rust", "use a::b; trait T {} fn f<F: Fn(u8) -> u8>(x: &'a M<u8, u8>) -> R {}"),
              "[USER[CODE_BLOCK[RUST[IMPORT][CLASS_DEF][FUNCTION_DEF[PARAMS:1]]]]]");
    EXPECT_EQ(in("sql",
                 "create table t (a int, b int); CREATE OR REPLACE FUNCTION f(a int, b numeric(1, "
                 "2)) returns int"),
              "[USER[CODE_BLOCK[SQL[CLASS_DEF][FUNCTION_DEF[PARAMS:2]]]]]");
}

TEST(Skeleton, MessagesToolsAndChain) {
    const Block system{.text = "Be kind."};
    const Block ask{.text = "Read it."};
    const Block use{.kind = BlockKind::kToolUse, .text = R"({"path":"/a"})", .name = "read file"};
    const Block result{.kind = BlockKind::kToolResult, .text = "- a\n- b"};
    const Block image{.kind = BlockKind::kImage};
    const Block last[] = {result, image};
    const Message messages[] = {{Role::kSystem, {&system, 1}},
                                {Role::kUser, {&ask, 1}},
                                {Role::kAssistant, {&use, 1}},
                                {Role::kUser, last}};
    Arena arena;
    const Analysis a = analyze({3, messages}, arena);
    EXPECT_EQ(
        a.canonical,
        R"([TOOLS:3][SYSTEM[TEXT]][USER[TEXT]][ASSISTANT[TOOL_USE:read%20file[JSON:{"path":s}]]][USER[TOOL_RESULT[LIST:BULLET:2]][IMAGE]])");
    const Key whole = a.whole;
    const Key head = a.system_tools;
    const Key turn = a.last_turn;
    const Analysis b = analyze({3, std::span(messages).first(2)}, arena);
    EXPECT_NE(b.whole, whole);
    EXPECT_NE(b.last_turn, turn);
    EXPECT_EQ(b.system_tools, head);
    EXPECT_TRUE(header_value(b).starts_with("key=" + b.whole.hex() + ";complexity=2;volatile=0"));
}

TEST(Skeleton, TextRunsOfBlocksStep) {
    const Block blocks[] = {{.text = "a"}, {.text = "b"}, {.text = "c"}};
    const Message m{Role::kUser, blocks};
    Arena arena;
    EXPECT_EQ(analyze({0, {&m, 1}}, arena).canonical, "[USER[TEXT:3]]");
}

TEST(Skeleton, VolatileValues) {
    Arena arena;
    const std::string text =
        "at 2026-10-21T12:33:01Z on 2026/10/21, 12:30, 550e8400-e29b-41d4-a716-446655440000 "
        "deadbeefdeadbeef01 0x1234567890abcdef toolu_01A09q90qw90lq917835lq9 1761043981 session: "
        "42 #17 and 15 ms, v2, 3.14, 99:99";
    const Analysis a = analyze_text(text, arena);
    std::string kinds;
    for (const Volatile& v : a.volatiles)
        kinds += std::string(name_of(v.kind)) + "=" + text.substr(v.offset, v.size) + ";";
    EXPECT_EQ(kinds,
              "timestamp=2026-10-21T12:33:01Z;date=2026/10/"
              "21;time=12:30;uuid=550e8400-e29b-41d4-a716-446655440000;"
              "hex=deadbeefdeadbeef01;hex=0x1234567890abcdef;token=01A09q90qw90lq917835lq9;epoch="
              "1761043981;counter=42;counter=17;");
    EXPECT_EQ(closed("at 2026-10-21 it"), closed("at noon it"));
}

TEST(Skeleton, ErrorsSayWhereWhatAndCure) {
    Arena arena;
    const std::string text = "<a>\n  x < y & z > w\n<b>\n</a>\n</c>\n```\nopen";
    const Analysis a = analyze_text(text, arena, {.strict = true});
    std::string all;
    for (const ParseError& e : a.errors) all += std::string(name_of(e.problem)) + " ";
    EXPECT_EQ(all, "raw_less raw_ampersand raw_greater unclosed_tag stray_close unclosed_fence ");
    EXPECT_EQ(
        describe(a.errors[0], text),
        "SKELETON_PARSE_ERROR line 2 column 5: found a raw < at \"< y & z > w\"; cure: write &lt;");
    EXPECT_EQ(analyze_text(text, arena).error_count, 0U) << "lenient: text";
    EXPECT_EQ(
        analyze_text("a\xff", arena).error_counts[static_cast<std::size_t>(Problem::kInvalidUtf8)],
        1U);
    EXPECT_EQ(analyze_text(std::string_view("a\0b\0", 4), arena)
                  .error_counts[static_cast<std::size_t>(Problem::kNulByte)],
              2U);
    EXPECT_EQ(place_of("é\r\nb\rc", 5).line, 2U);
    EXPECT_EQ(place_of("éa", 2).column, 2U);
}

TEST(Skeleton, BoundedDepthAndRecovery) {
    std::string deep;
    for (int i = 0; i < 100000; ++i) deep += "<a>";
    for (int i = 0; i < 100000; ++i) deep += "</a>";
    Arena arena;
    EXPECT_EQ(analyze_text(deep, arena).complexity, 66);
    EXPECT_GT(analyze_text(deep, arena, {.strict = true})
                  .error_counts[static_cast<std::size_t>(Problem::kTooDeep)],
              90000U);
}

TEST(Skeleton, ArenaIsReusedAndReentrant) {
    Arena arena;
    std::string text;
    for (int i = 0; i < 500; ++i) text += "<a>\n- x\n</a>\n```py\ndef f(a): pass\n```\n";
    static_cast<void>(analyze_text(text, arena));
    const std::size_t held = arena.bytes();
    const std::string key = analyze_text(text, arena).whole.hex();
    EXPECT_EQ(arena.bytes(), held);
    std::vector<std::thread> threads;
    std::vector<std::string> keys(4);
    for (std::size_t t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            Arena mine;
            for (int i = 0; i < 20; ++i) keys[t] = analyze_text(text, mine).whole.hex();
        });
    for (std::thread& t : threads) t.join();
    for (const std::string& k : keys) EXPECT_EQ(k, key);
    arena.shrink(1000);
    EXPECT_EQ(arena.bytes(), 0U);
    EXPECT_LE(tables_bytes(), 128U * 1024);
}

TEST(Template, RolesEntitiesAndCue) {
    Arena arena;
    const Template t = parse_template(
        "<system>A &lt;b&gt; &amp;amp; &#x41;&#66;</system>\n<user><q>x</q></user>\n<assistant>",
        true, arena);
    EXPECT_TRUE(t.errors.empty());
    ASSERT_EQ(t.messages.size(), 3U);
    EXPECT_EQ(t.messages[0].role, Role::kSystem);
    EXPECT_EQ(t.messages[0].text, "A <b> &amp; AB");
    EXPECT_EQ(t.messages[1].text, "<q>x</q>");
    EXPECT_EQ(t.messages[2].role, Role::kAssistant);
    EXPECT_EQ(t.messages[2].text, "");
}

TEST(Template, StrictAndLenient) {
    Arena arena;
    const std::string text = "before <user>a <system>b</system></user> after";
    const Template strict = parse_template(text, true, arena);
    ASSERT_EQ(strict.errors.size(), 3U);
    EXPECT_EQ(strict.errors[0].problem, Problem::kTextOutsideRoles);
    EXPECT_EQ(strict.errors[1].problem, Problem::kRoleInsideRole);
    EXPECT_EQ(strict.errors[2].problem, Problem::kTextOutsideRoles);
    const Template lenient = parse_template(text, false, arena);
    EXPECT_TRUE(lenient.errors.empty());
    ASSERT_EQ(lenient.messages.size(), 3U);
    EXPECT_EQ(lenient.messages[1].text, "a <system>b</system>");
}

TEST(Optimize, EachRuleAndItsSwitch) {
    const std::string text =
        "<system>\nHello.\n\nNow: 2026-10-21T10:00:00Z\n\nFor {name}.\n\n<p>a</p> "
        "<p>b</p>\n\n<x><x>y</x></x>\n<empty></empty>\n</system>\n<user>{q}</user>\n<assistant>";
    const Optimized o = optimize(text, {});
    EXPECT_EQ(o.text,
              "<system>\nHello.\n\nNow: <timestamp/>\n\n<p>ab</p>\n\n<x>y</x>\n\nFor "
              "{name}.\n</system>\n<user>{q}</user>\n<assistant>");
    EXPECT_GT(o.reusable_after, o.reusable_before);
    EXPECT_LT(o.complexity_after, o.complexity_before);
    EXPECT_EQ(optimize(text, {.off = 0x3F, .role_rules = {}}).text, text);
    EXPECT_EQ(optimize(o.text, {}).text, o.text) << "stable";
    EXPECT_EQ(optimize("For {name}.\n\nUse the text above.", {}).text,
              "For {name}.\n\nUse the text above.");
    EXPECT_EQ(optimize("You are an analyst.",
                       {.role_rules = {{"You are an analyst.", "<role>analyst</role>"}}})
                  .text,
              "<role>analyst</role>");
}

TEST(CHeader, MatchesTheLibrary) {
    const std::string text = "<a>x</a> 2026-10-21";
    zh_skeleton* s = zh_skeleton_new();
    zh_skeleton_result r;
    zh_skeleton_text(s, text.data(), text.size(), 0, &r);
    Arena arena;
    const Analysis a = analyze_text(text, arena);
    EXPECT_EQ(std::string(r.canonical, r.canonical_size), a.canonical);
    EXPECT_EQ(r.key_high, a.whole.high);
    EXPECT_EQ(r.key_low, a.whole.low);
    EXPECT_EQ(r.complexity, 3);
    EXPECT_EQ(r.volatile_count, 1U);
    zh_skeleton_free(s);
}

}  // namespace
}  // namespace zerohop::skeleton
