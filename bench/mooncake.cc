// bench_mooncake: the prefix tree's bookkeeping on a public trace, and the time of a look-up.
//
//   bench_mooncake [TRACE.jsonl]      or ZEROHOP_TRACES=FOLDER (mooncake-synthetic.jsonl in it)
//
// Replay: each line's hash_ids are blocks; a block becomes 16 tokens made from its id, so that
// equal ids under equal prefixes are equal token runs. Pools of 10, 25 and 50 % of the unique
// blocks. The yardstick is written here, apart from the tree: plain LRU by block, leaves first.
// Hits are the blocks of a prompt's longest cached prefix. Look-up: 4,000-token prompts against
// 1,000 stored prefixes that share system prompts. The last line is JSON: {"mooncake_lru": least of
// the three ratios, "lookup_us": median}.
#include <simdjson.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "kv/prefix_tree.h"

namespace {

using zerohop::kv::Token;
using Prompt = std::vector<std::uint32_t>;  // block ids

bool load(const std::string& path, std::vector<Prompt>& out) {
    simdjson::dom::parser parser;
    simdjson::dom::document_stream lines;
    simdjson::padded_string bytes;
    if (simdjson::padded_string::load(path).get(bytes) != simdjson::SUCCESS) return false;
    if (parser.parse_many(bytes, 16 << 20).get(lines) != simdjson::SUCCESS) return false;
    for (auto line : lines) {
        simdjson::dom::array ids;
        if (line["hash_ids"].get(ids) != simdjson::SUCCESS) return false;
        Prompt prompt;
        for (auto id : ids) {
            std::uint64_t value = 0;
            if (id.get(value) != simdjson::SUCCESS) return false;
            prompt.push_back(static_cast<std::uint32_t>(value));
        }
        out.push_back(std::move(prompt));
    }
    return !out.empty();
}

// Plain LRU by block: of the blocks no other cached block follows, the least recently used goes.
class PlainLru {
  public:
    explicit PlainLru(std::size_t capacity) : capacity_(capacity) {}

    std::size_t request(const Prompt& prompt) {
        ++now_;
        std::size_t hits = 0;
        while (hits < prompt.size() && blocks_.contains(prompt[hits])) ++hits;
        for (std::size_t i = 0; i < prompt.size(); ++i) {
            auto [it, fresh] = blocks_.try_emplace(prompt[i]);
            Block& block = it->second;
            if (block.children == 0 && !fresh) leaves_.erase({block.used, prompt[i]});
            if (fresh && i > 0) {
                block.parent = prompt[i - 1];
                block.has_parent = true;
                Block& parent = blocks_.at(block.parent);
                if (parent.children++ == 0) leaves_.erase({parent.used, block.parent});
            }
            block.used = now_;
            if (block.children == 0) leaves_.emplace(now_, prompt[i]);
        }
        while (blocks_.size() > capacity_) evict();
        return hits;
    }

  private:
    struct Block {
        std::uint64_t used = 0;
        std::uint32_t parent = 0, children = 0;
        bool has_parent = false;
    };
    void evict() {
        const std::uint32_t id = leaves_.begin()->second;
        leaves_.erase(leaves_.begin());
        const Block block = blocks_.at(id);
        blocks_.erase(id);
        if (!block.has_parent) return;
        Block& parent = blocks_.at(block.parent);
        if (--parent.children == 0) leaves_.emplace(parent.used, block.parent);
    }
    std::size_t capacity_;
    std::uint64_t now_ = 0;
    std::unordered_map<std::uint32_t, Block> blocks_;
    std::set<std::pair<std::uint64_t, std::uint32_t>> leaves_;
};

std::size_t replay(const std::vector<Prompt>& trace, std::size_t capacity, bool adaptive) {
    using namespace zerohop::kv;
    PrefixTree tree({.capacity_tokens = capacity * kBlockTokens, .adaptive = adaptive});
    const Namespace ns = derive_namespace("trace", "model");
    std::vector<Token> tokens;
    std::vector<Trim> trims;
    std::size_t hits = 0;
    for (const Prompt& prompt : trace) {
        tokens.clear();
        for (const std::uint32_t id : prompt) tokens.insert(tokens.end(), kBlockTokens, Token(id));
        const Match match = tree.lookup(ns, tokens);
        hits += match.cached / kBlockTokens;
        const EntryId entry = tree.open(ns, tokens, match.cached, 0);
        tree.make_room(0, trims);
        tree.advance(entry, static_cast<std::uint32_t>(tokens.size()));
        tree.close(entry);
        tree.make_room(0, trims);
        trims.clear();
    }
    return hits;
}

double lookup_us() {
    using namespace zerohop::kv;
    std::mt19937 rng(7);
    std::uniform_int_distribution<Token> token(0, 49151);
    PrefixTree tree({.capacity_tokens = 100'000'000});
    const Namespace ns = derive_namespace("bench", "model");
    std::vector<std::vector<Token>> systems(20), prompts(1000);
    for (auto& s : systems)
        for (int i = 0; i < 3000; ++i) s.push_back(token(rng));
    for (std::size_t p = 0; p < prompts.size(); ++p) {
        prompts[p] = systems[p % systems.size()];
        for (int i = 0; i < 1000; ++i) prompts[p].push_back(token(rng));
        const EntryId e = tree.open(ns, prompts[p], 0, 0);
        tree.advance(e, 4000);
        tree.close(e);
    }
    for (auto& p : prompts) p.back() ^= 1;  // a near hit: everything is compared
    std::vector<double> times;
    std::uint64_t sum = 0;
    for (int round = 0; round < 5; ++round)
        for (const auto& p : prompts) {
            const auto start = zerohop::mono_now();
            sum += tree.lookup(ns, p).cached;
            times.push_back(static_cast<double>(zerohop::mono_now() - start) / 1e3);
        }
    if (sum != 5ULL * 1000 * 3999) std::fprintf(stderr, "wrong match lengths\n"), std::exit(1);
    std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
    return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
    std::string path;
    if (argc > 1)
        path = argv[1];
    else if (const char* folder = std::getenv("ZEROHOP_TRACES"))
        path = std::string(folder) + "/mooncake-synthetic.jsonl";
    std::vector<Prompt> trace;
    if (path.empty() || !load(path, trace)) {
        std::fprintf(stderr, "usage: bench_mooncake TRACE.jsonl (or set ZEROHOP_TRACES)\n");
        return 2;
    }
    std::unordered_set<std::uint32_t> unique;
    for (const Prompt& p : trace) unique.insert(p.begin(), p.end());
    std::printf("%zu requests, %zu unique blocks\n", trace.size(), unique.size());
    double least = 1e9;
    for (const std::size_t percent : {10, 25, 50}) {
        const std::size_t capacity = unique.size() * percent / 100;
        PlainLru lru(capacity);
        std::size_t plain = 0;
        for (const Prompt& p : trace) plain += lru.request(p);
        const auto start = zerohop::mono_now();
        const std::size_t ours = replay(trace, capacity, true);
        const double ms = static_cast<double>(zerohop::mono_now() - start) / 1e6;
        const std::size_t ours_plain = replay(trace, capacity, false);
        const double ratio = static_cast<double>(ours) / static_cast<double>(plain);
        least = std::min(least, ratio);
        std::printf(
            "pool %2zu %%: %6zu blocks, plain LRU %zu hits, ours %zu (%.4f), ours without "
            "learning %.4f, %.0f ms\n",
            percent, capacity, plain, ours, ratio,
            static_cast<double>(ours_plain) / static_cast<double>(plain), ms);
    }
    std::printf("{\"mooncake_lru\": %.4f, \"lookup_us\": %.2f}\n", least, lookup_us());
    return 0;
}
