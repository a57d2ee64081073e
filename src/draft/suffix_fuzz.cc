// Any texts and any reader: the automaton agrees with plain search; proposals of a session come
// from what was learnt, within their limit.
#include <cstddef>
#include <cstdint>

#include "draft/suffix_store.h"
#include "draft/testing/suffix_model.h"

namespace {

using namespace zerohop;
using draft::Token;

void check_session(std::span<const std::uint8_t> bytes) {
    draft::SuffixStore store({.max_bytes = 60'000, .corpus_tokens = 64, .own_tokens = 32});
    const kv::Namespace ns = kv::derive_namespace("w", "m");
    const std::vector<draft::DraftKey> chain = {{ns, 1, 0}, {ns, 2, 0}, {ns, 1, 0}};
    draft::DraftController controller;
    std::vector<Token> output;
    const std::vector<Token> prompt = {1, 2, 3};
    draft::DraftSession session(store, chain, prompt);
    draft::Draft out;
    for (const std::uint8_t b : bytes) {
        if (b >= 250) {
            store.learn(chain, prompt, output);
            output.clear();
            continue;
        }
        output.push_back(b & 7);
        session.accept(b & 7);
        session.propose(b >> 3, controller, out);
        ZH_CHECK(out.tokens.size() <= (b >> 3) && out.tokens.size() == out.evidence.size());
        ZH_CHECK(store.bytes() <= 60'000);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size > 160) size = 160;
    const std::size_t searched = size < 64 ? size : 64;  // plain search is cubic
    std::vector<draft::testing::Text> texts(1);
    std::vector<Token> reader;
    for (std::size_t i = 0; i < searched; ++i) {
        if (data[i] >= 240)
            texts.emplace_back();
        else if (i % 3 == 2)
            reader.push_back(data[i] & 3);
        else
            texts.back().push_back(data[i] & 3);
    }
    bool exact = true;
    for (const auto& t : texts) exact = exact && t.size() <= 30;
    draft::testing::compare(texts, reader, exact);
    check_session({data, size});
    return 0;
}
