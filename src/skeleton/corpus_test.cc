// The corpora: golden keys, variants that keep the key, variants that change it, hostile inputs.
// ZEROHOP_WRITE_GOLDEN=1 writes tests/corpus/skeleton_golden.tsv anew (after a change of format).
#include "skeleton/corpus.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "skeleton/skeleton.h"
#include "skeleton/testing/reference.h"

namespace zerohop::skeleton {
namespace {

constexpr std::uint64_t kPerKind = 24;  // 14 kinds: 336 prompts

std::string key_of(const corpus::Conversation& c) {
    const corpus::View view(c);
    Arena arena;
    return analyze(view.prompt, arena).whole.hex();
}
std::string key_of(const std::string& text) {
    Arena arena;
    return analyze_text(text, arena).whole.hex();
}

TEST(Corpus, GoldenKeys) {
    const std::string path = std::string(ZEROHOP_SOURCE_DIR) + "/tests/corpus/skeleton_golden.tsv";
    std::map<std::string, std::string> now;
    for (const std::string_view kind : corpus::kKinds)
        for (std::uint64_t i = 0; i < kPerKind; ++i) {
            const corpus::Conversation c = corpus::make(kind, i, i + 77);
            const corpus::View view(c);
            Arena arena;
            const Analysis a = analyze(view.prompt, arena);
            now[std::string(kind) + "/" + std::to_string(i)] =
                a.whole.hex() + "\t" + std::to_string(a.complexity);
        }
    ASSERT_GE(now.size(), 300U);
    if (std::getenv("ZEROHOP_WRITE_GOLDEN") != nullptr) {
        std::ofstream out(path);
        for (const auto& [name, value] : now) out << name << "\t" << value << "\n";
    }
    std::ifstream in(path);
    std::map<std::string, std::string> golden;
    for (std::string line; std::getline(in, line);)
        golden[line.substr(0, line.find('\t'))] = line.substr(line.find('\t') + 1);
    EXPECT_EQ(golden, now);
}

TEST(Corpus, WordsNumbersAndSpacingDoNotCount) {
    for (const std::string_view kind : corpus::kKinds)
        for (std::uint64_t i = 0; i < kPerKind; ++i) {
            const std::string key = key_of(corpus::make(kind, i, 1));
            for (std::uint64_t style = 2; style < 6; ++style)
                EXPECT_EQ(key_of(corpus::make(kind, i, style * 1000 + i)), key)
                    << kind << " " << i << " " << style;
        }
}

TEST(Corpus, RenamedFunctionsKeepTheirKey) {
    for (int i = 0; i < 540; ++i)
        EXPECT_EQ(key_of(corpus::rename_case(i, 1)),
                  key_of(corpus::rename_case(i, 1000U + static_cast<unsigned>(i))))
            << corpus::rename_case(i, 1) << "\n---\n"
            << corpus::rename_case(i, 1000U + static_cast<unsigned>(i));
}

TEST(Corpus, MutantsChangeTheKey) {
    for (const std::string_view mutation : corpus::kMutations)
        for (std::uint64_t seed = 0; seed < 50; ++seed) {
            const auto [a, b] = corpus::mutant(mutation, seed);
            EXPECT_NE(key_of(a), key_of(b)) << mutation << "\n" << a << "\n---\n" << b;
        }
}

TEST(Corpus, ReferenceAgrees) {
    for (const std::string_view kind : corpus::kKinds)
        for (std::uint64_t i = 0; i < 6; ++i) {
            const corpus::Conversation c = corpus::make(kind, i, i);
            const corpus::View view(c);
            Arena arena;
            EXPECT_EQ(analyze(view.prompt, arena).canonical,
                      reference::read(view.prompt, false).canonical)
                << kind;
        }
}

TEST(Corpus, HostileInputsEnd) {
    for (const std::string_view kind : corpus::kHostile) {
        const std::string text = corpus::hostile(kind, 300000);
        Arena arena;
        for (const bool strict : {false, true}) {
            const Analysis a = analyze_text(text, arena, {.strict = strict});
            const std::string fast(a.canonical);
            EXPECT_LE(a.complexity, 70) << kind;
            EXPECT_EQ(analyze_text(text, arena, {.strict = strict, .portable = true}).canonical,
                      fast)
                << kind;
        }
    }
}

}  // namespace
}  // namespace zerohop::skeleton
