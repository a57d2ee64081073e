#include "request/output_text.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

namespace zerohop {
namespace {

struct Outcome {
    std::string text;
    std::int32_t matched = OutputText::kNoMatch;
};

Outcome run(const std::vector<std::string>& stops, const std::vector<std::string>& tokens) {
    OutputText output(stops);
    Outcome outcome;
    for (const std::string& token : tokens)
        if (output.append(token, outcome.text)) break;
    output.flush(outcome.text);
    outcome.matched = output.matched();
    return outcome;
}

// StopRule::kWholeToken: the text, and how many tokens were taken.
std::pair<std::string, std::size_t> whole_tokens(const std::vector<std::string>& stops,
                                                 const std::vector<std::string>& tokens) {
    OutputText output(stops, StopRule::kWholeToken);
    std::string text;
    std::size_t taken = 0;
    for (const std::string& token : tokens) {
        ++taken;
        if (output.append(token, text)) break;
    }
    output.flush(text);
    return {text, output.matched() == OutputText::kNoMatch ? 0 : taken};
}

TEST(OutputText, TheMostStopSequencesCostLittle) {
    std::vector<std::string> stops;  // one long run, and many that differ in every byte
    stops.emplace_back(OutputText::kMaxStopBytes - 255 * 32, 'a');
    for (int i = 0; i < 255; ++i)
        stops.push_back(std::string(31, 'a') + static_cast<char>(i == 'a' ? 'z' : i));
    const auto start = std::chrono::steady_clock::now();
    OutputText output(stops);
    std::string out;
    EXPECT_FALSE(output.append(std::string(50, 'a'), out));
    EXPECT_TRUE(output.append("z", out));  // of 31 'a' and a 'z'
    EXPECT_EQ(out, std::string(19, 'a'));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

TEST(OutputText, WholeTokensEndAfterTheTokenThatCompletesAMatch) {
    using Outcome2 = std::pair<std::string, std::size_t>;
    EXPECT_EQ(whole_tokens({"\n"}, {"one", " two\n three", " four"}),
              Outcome2("one two\n three", 2));
    EXPECT_EQ(whole_tokens({"STOP"}, {"ab ST", "OP and", " more"}), Outcome2("ab STOP and", 2));
    // One token comes first, whatever is in it; a match that only ends in the next counts.
    EXPECT_EQ(whole_tokens({"x"}, {"x", "y", "x!", "z"}), Outcome2("xyx!", 3));
    EXPECT_EQ(whole_tokens({"never"}, {"nev", "e", "r ever"}), Outcome2("never ever", 3));
    EXPECT_EQ(whole_tokens({"never"}, {"nev", "en"}), Outcome2("neven", 0));
    // Nothing is held back, and a code point that the last token only began becomes U+FFFD.
    EXPECT_EQ(whole_tokens({"b"}, {"a", "b\xE2\x82", "\xAC"}), Outcome2("ab\xEF\xBF\xBD", 2));
    EXPECT_EQ(whole_tokens({"\u20AC"}, {"a", "\xE2\x82", "\xAC c"}), Outcome2("a\u20AC c", 3));
}

std::vector<std::string> bytes_of(std::string_view text) {
    std::vector<std::string> out;
    for (const char c : text) out.emplace_back(1, c);
    return out;
}

// The plain way: the first end of any stop sequence, the longest of those that end there.
Outcome slow(const std::vector<std::string>& stops, const std::string& text) {
    for (std::size_t end = 1; end <= text.size(); ++end) {
        std::int32_t best = OutputText::kNoMatch;
        for (std::size_t i = 0; i < stops.size(); ++i) {
            const std::string& stop = stops[i];
            if (stop.size() > end || text.compare(end - stop.size(), stop.size(), stop) != 0)
                continue;
            if (best < 0 || stop.size() > stops[static_cast<std::size_t>(best)].size())
                best = static_cast<std::int32_t>(i);
        }
        if (best >= 0)
            return {text.substr(0, end - stops[static_cast<std::size_t>(best)].size()), best};
    }
    return {text, OutputText::kNoMatch};
}

TEST(OutputText, PassesPlainTextThroughAtOnce) {
    OutputText output({});
    std::string out;
    EXPECT_FALSE(output.append("Hello", out));
    EXPECT_EQ(out, "Hello");
    EXPECT_EQ(output.held_bytes(), 0U);
}

TEST(OutputText, HoldsAnEmojiUntilItIsWhole) {
    OutputText output({});
    std::string out;
    output.append("\xF0\x9F", out);
    EXPECT_EQ(out, "");
    output.append("\x98", out);
    EXPECT_EQ(out, "");
    output.append("\x80!", out);
    EXPECT_EQ(out, "\xF0\x9F\x98\x80!");
}

TEST(OutputText, ReplacesWhatCanNotBecomeValid) {
    const std::string fffd = "\xEF\xBF\xBD";
    EXPECT_EQ(run({}, {"\xFF"}).text, fffd);
    EXPECT_EQ(run({}, {"a\x80"
                       "b"})
                  .text,
              "a" + fffd + "b");
    EXPECT_EQ(run({}, {"\xF0\x9F", "x"}).text, fffd + "x");         // one maximal subpart
    EXPECT_EQ(run({}, {"\xED\xA0\x80"}).text, fffd + fffd + fffd);  // a surrogate
    EXPECT_EQ(run({}, {"\xC0\xAF"}).text, fffd + fffd);             // overlong
    EXPECT_EQ(run({}, {"\xE2\x82", "\xE2\x82\xAC"}).text, fffd + "\xE2\x82\xAC");
    EXPECT_EQ(run({}, {"a\xF0\x9F\x98"}).text, "a");  // cut short by the end: no character
    EXPECT_EQ(run({}, {std::string("a\0b", 3)}).text, std::string("a\0b", 3));
}

TEST(OutputText, CutsBeforeAStopSequenceOverManyTokens) {
    const auto outcome = run({"STOP"}, {"one S", "T", "O", "P two"});
    EXPECT_EQ(outcome.text, "one ");
    EXPECT_EQ(outcome.matched, 0);
}

TEST(OutputText, NeverShowsPartOfAStopSequence) {
    OutputText output({"\n\nHuman:"});
    std::string out;
    output.append("Hi\n\nHum", out);
    EXPECT_EQ(out, "Hi");
    output.append("ming", out);
    EXPECT_EQ(out, "Hi\n\nHumming");
}

TEST(OutputText, OverlapFindsTheLaterStart) {
    EXPECT_EQ(run({"aab"}, bytes_of("aaab")).text, "a");
    EXPECT_EQ(run({"aab"}, {"aaab"}).text, "a");
    EXPECT_EQ(run({"abac"}, bytes_of("ababac!")).text, "ab");
    EXPECT_EQ(run({"abcabd"}, {"abcab", "cabd"}).text, "abc");
}

TEST(OutputText, EarliestEndWinsAndThenTheLongest) {
    EXPECT_EQ(run({"abcd", "bc"}, {"abcd"}).matched, 1);
    EXPECT_EQ(run({"abcd", "bc"}, {"abcd"}).text, "a");
    EXPECT_EQ(run({"d", "bcd"}, {"abcd"}).matched, 1);
    EXPECT_EQ(run({"x", "x"}, {"x"}).matched, 0);
}

TEST(OutputText, StopSequenceOfManyBytesSplitInsideACodePoint) {
    // "é" and "è" share their first byte.
    EXPECT_EQ(run({"\xC3\xA9"}, {"caf\xC3", "\xA8!"}).text, "caf\xC3\xA8!");
    EXPECT_EQ(run({"\xC3\xA9"}, {"caf\xC3", "\xA9!"}).text, "caf");
    EXPECT_EQ(run({"\xF0\x9F\x98\x80 end"}, bytes_of("a\xF0\x9F\x98\x80 end")).text, "a");
}

TEST(OutputText, NothingComesAfterAMatch) {
    OutputText output({"x"});
    std::string out;
    EXPECT_TRUE(output.append("ax", out));
    EXPECT_TRUE(output.append("more", out));
    output.flush(out);
    EXPECT_EQ(out, "a");
}

TEST(OutputText, AgreesWithThePlainWayOnAnySplit) {
    std::mt19937 rng(7);
    const std::vector<std::string> letters{"a", "b", "\xC3\xA9", "\xC3\xA8"};
    const auto word = [&](std::size_t length) {
        std::string out;
        for (std::size_t i = 0; i < length; ++i) out += letters[rng() % letters.size()];
        return out;
    };
    for (int round = 0; round < 20000; ++round) {
        std::vector<std::string> stops;
        for (std::size_t n = rng() % 4; n > 0; --n) stops.push_back(word(1 + rng() % 5));
        const std::string text = word(rng() % 24);
        std::vector<std::string> tokens;
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t n = 1 + rng() % 4;
            tokens.push_back(text.substr(at, n));
            at += n;
        }
        const Outcome want = slow(stops, text);
        const Outcome got = run(stops, tokens);
        ASSERT_EQ(got.text, want.text) << text;
        ASSERT_EQ(got.matched, want.matched) << text;
        if (want.matched != OutputText::kNoMatch) continue;
        // Held back is the longest end of the text that begins a stop sequence, no more.
        OutputText output(stops);
        std::string sent;
        output.append(text, sent);
        std::size_t longest = 0;
        for (const std::string& stop : stops)
            for (std::size_t n = 1; n < stop.size(); ++n)
                if (text.ends_with(stop.substr(0, n)) && (stop[n] & 0xC0) != 0x80)
                    longest = std::max(longest, n);
        ASSERT_EQ(output.held_bytes(), longest) << text;
    }
}

TEST(OutputText, EveryDeltaIsValidUtf8ByItself) {
    const std::string text = "a\xC3\xA9\xF0\x9F\x98\x80z\xE2\x82\xAC";
    OutputText output({"\xC3\xA9\xF0\x9F\x98\x81"});
    std::string all;
    for (const std::string& byte : bytes_of(text)) {
        std::string delta;
        output.append(byte, delta);
        std::string again;
        OutputText check({});
        check.append(delta, again);
        EXPECT_EQ(again, delta);
        EXPECT_EQ(check.held_bytes(), 0U);
        all += delta;
    }
    output.flush(all);
    EXPECT_EQ(all, text);
}

TEST(OutputText, LinearOnTextMadeToBacktrack) {
    // Every byte is the beginning of a match that fails at its last byte.
    OutputText output({std::string(4000, 'a') + "b"});
    const auto begin = std::chrono::steady_clock::now();
    std::string out;
    for (int i = 0; i < 1'000'000; ++i) output.append("a", out);
    const auto took = std::chrono::steady_clock::now() - begin;
    output.flush(out);
    EXPECT_EQ(out.size(), 1'000'000U);
    EXPECT_LT(took, std::chrono::seconds(10));  // a quadratic way takes minutes
}

}  // namespace
}  // namespace zerohop
