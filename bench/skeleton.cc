// The figures of the skeleton: `bench_skeleton --json` prints one JSON object as its last line.
// bench/skeleton.py adds linear_ratio, which needs an instruction counter around --once, and the
// optimizer's gain in tokens, which needs a tokenizer.
//
//   --once KIND BYTES [--dry]   makes a hostile input and (unless --dry) analyzes it once
//   --kinds                     names them
//   --prefixes                  reusable prefixes before and after optimizing, each ended by NUL
#include "skeleton/skeleton.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "skeleton/corpus.h"
#include "skeleton/optimize.h"

namespace sk = zerohop::skeleton;
namespace corpus = zerohop::skeleton::corpus;

namespace {

using Clock = std::chrono::steady_clock;
double us_since(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

struct Interval {
    double median = 0;
    double low = 0;
    double high = 0;
};
// The median and its 95 % interval from order statistics.
Interval median_of(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    const auto n = static_cast<double>(v.size());
    const double half = 0.98 * std::sqrt(n);
    const auto at = [&](double rank) {
        return v[static_cast<std::size_t>(std::clamp(rank, 0.0, n - 1))];
    };
    return {at(n / 2), at(n / 2 - half), at(n / 2 + half)};
}
double percentile(std::vector<double> v, double p) {
    std::sort(v.begin(), v.end());
    return v[std::min(v.size() - 1, static_cast<std::size_t>(p * static_cast<double>(v.size())))];
}
std::string shown(const Interval& i) { return fmt::format("[{:.3f},{:.3f}]", i.low, i.high); }

// MB/s of one prompt, analyzed again and again.
Interval rate(const sk::Prompt& prompt, std::size_t bytes, int samples) {
    sk::Arena arena;
    static_cast<void>(sk::analyze(prompt, arena));
    std::vector<double> rates;
    for (int i = 0; i < samples; ++i) {
        const auto start = Clock::now();
        static_cast<void>(sk::analyze(prompt, arena));
        rates.push_back(static_cast<double>(bytes) / us_since(start));
    }
    return median_of(rates);
}

constexpr std::uint64_t kTemplates = 60;
void print_prefixes() {
    for (std::uint64_t i = 0; i < kTemplates; ++i) {
        const std::string text = corpus::badly_ordered_template(i);
        const sk::Optimized o = sk::optimize(text, {});
        for (const std::string& prefix :
             {text.substr(0, o.reusable_before), o.text.substr(0, o.reusable_after)}) {
            std::fwrite(prefix.data(), 1, prefix.size(), stdout);
            std::fputc(0, stdout);
        }
    }
}

std::string key_of(const std::string& text) {
    sk::Arena arena;
    return sk::analyze_text(text, arena).whole.hex();
}

std::string figures(int samples) {
    std::string out =
        fmt::format("{{\"bench\":\"skeleton\",\"implementation\":\"{}\"", sk::implementation());

    std::vector<double> times;
    std::vector<double> p99s;
    {
        // 64 prompts in turn, so that neither branches nor data are learned by heart; p99 per
        // round.
        std::vector<std::unique_ptr<corpus::Conversation>> prompts;
        std::vector<std::unique_ptr<corpus::View>> views;
        for (std::uint64_t i = 0; i < 64; ++i) {
            prompts.push_back(std::make_unique<corpus::Conversation>(corpus::agent_4k(i)));
            views.push_back(std::make_unique<corpus::View>(*prompts.back()));
        }
        sk::Arena arena;
        for (int round = 0; round < samples; ++round) {
            std::vector<double> mine;
            for (int k = 0; k < 20; ++k)
                for (const auto& view : views) {
                    const auto start = Clock::now();
                    static_cast<void>(sk::analyze(view->prompt, arena));
                    mine.push_back(us_since(start));
                }
            p99s.push_back(percentile(mine, 0.99));
            times.push_back(percentile(mine, 0.5));
        }
    }
    const Interval p50 = median_of(times);
    const Interval p99 = median_of(p99s);
    out += fmt::format(
        ",\"us_4k_p50\":{:.3f},\"us_4k_p50_ci\":{},\"us_4k_p99\":{:.3f},\"us_4k_p99_ci\":{}",
        p50.median, shown(p50), p99.median, shown(p99));

    Interval slowest{1e9, 0, 0};
    std::string slowest_kind;
    corpus::Conversation mixed;
    std::string per_kind;
    for (const std::string_view kind : corpus::kKinds) {
        const corpus::Conversation c = corpus::bulk(kind, 1 << 20);
        const corpus::View view(c);
        const Interval r = rate(view.prompt, c.bytes(), samples);
        per_kind += fmt::format("{}\"{}\":{:.0f}", per_kind.empty() ? "" : ",", kind, r.median);
        if (r.median < slowest.median) {
            slowest = r;
            slowest_kind = kind;
        }
        const corpus::Conversation part = corpus::bulk(kind, (1 << 20) / corpus::kKinds.size());
        for (const corpus::Turn& t : part.turns) mixed.turns.push_back(t);
    }
    const corpus::View all(mixed);
    const Interval m = rate(all.prompt, mixed.bytes(), samples);
    out += fmt::format(
        ",\"mb_s\":{:.1f},\"mb_s_ci\":{},\"mb_s_slowest_kind\":\"{}\",\"mb_s_mixed\":{:.1f},\"mb_s_"
        "mixed_ci\":{}"
        ",\"mb_s_by_kind\":{{{}}}",
        slowest.median, shown(slowest), slowest_kind, m.median, shown(m), per_kind);
    out += fmt::format(",\"tables_kib\":{:.2f}", static_cast<double>(sk::tables_bytes()) / 1024);

    int hits = 0;
    constexpr int kFunctions = 540;
    for (int i = 0; i < kFunctions; ++i)
        hits += key_of(corpus::rename_case(i, 1)) ==
                        key_of(corpus::rename_case(i, 1000 + static_cast<std::uint64_t>(i)))
                    ? 1
                    : 0;
    out += fmt::format(",\"rename_hit_rate\":{:.4f},\"rename_pairs\":{}",
                       static_cast<double>(hits) / kFunctions, kFunctions);

    int differ = 0;
    int pairs = 0;
    for (const std::string_view mutation : corpus::kMutations)
        for (std::uint64_t seed = 0; seed < 50; ++seed) {
            const auto [a, b] = corpus::mutant(mutation, seed);
            differ += key_of(a) != key_of(b) ? 1 : 0;
            ++pairs;
        }
    out += fmt::format(",\"must_differ_rate\":{:.4f},\"must_differ_pairs\":{}",
                       static_cast<double>(differ) / pairs, pairs);

    std::vector<double> gains;
    for (std::uint64_t i = 0; i < kTemplates; ++i) {
        const sk::Optimized o = sk::optimize(corpus::badly_ordered_template(i), {});
        gains.push_back(static_cast<double>(o.reusable_after) /
                        static_cast<double>(std::max<std::size_t>(1, o.reusable_before)));
    }
    const Interval gain = median_of(gains);
    out += fmt::format(",\"optimize_gain_bytes\":{:.3f},\"optimize_gain_bytes_ci\":{}", gain.median,
                       shown(gain));
    return out + "}";
}

}  // namespace

int main(int argc, char** argv) {
    if (argc >= 4 && std::strcmp(argv[1], "--once") == 0) {
        const std::string text = corpus::hostile(argv[2], std::strtoul(argv[3], nullptr, 10));
        if (argc > 4) return text.empty() ? 1 : 0;
        sk::Arena arena;
        return sk::analyze_text(text, arena).complexity > 0 ? 0 : 1;
    }
    if (argc >= 2 && std::strcmp(argv[1], "--kinds") == 0) {
        for (const std::string_view kind : corpus::kHostile) fmt::print("{}\n", kind);
        return 0;
    }
    if (argc >= 2 && std::strcmp(argv[1], "--prefixes") == 0) {
        print_prefixes();
        return 0;
    }
    int samples = 31;
    for (int i = 1; i + 1 < argc; ++i)
        if (std::strcmp(argv[i], "--samples") == 0) samples = std::max(5, std::atoi(argv[i + 1]));
    fmt::print("{}\n", figures(samples));
    return 0;
}
