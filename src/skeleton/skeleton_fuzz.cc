// Differential fuzzing: the fast scanner, its portable twin and the plain reference agree on
// canonical form, depth, volatile spans and errors by kind; templates never crash.
// First byte: bit 0 strict, bit 1 tool result, bit 2 tool use, bit 3 the text in two blocks,
// bits 4 and up unused. The rest is the text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "skeleton/skeleton.h"
#include "skeleton/testing/reference.h"

namespace sk = zerohop::skeleton;

namespace {

[[noreturn]] void differ(const char* what, std::string_view fast, std::string_view slow) {
    std::fprintf(stderr, "fast and reference differ in %s\n fast %.*s\n slow %.*s\n", what,
                 static_cast<int>(fast.size()), fast.data(), static_cast<int>(slow.size()),
                 slow.data());
    std::abort();
}

void compare(const sk::Analysis& a, const sk::reference::Result& r) {
    if (a.canonical != r.canonical) differ("canonical form", a.canonical, r.canonical);
    if (a.complexity != r.complexity) differ("complexity", a.canonical, r.canonical);
    if (a.volatile_count != r.volatiles.size()) differ("volatile count", "", "");
    for (std::size_t i = 0; i < a.volatiles.size(); ++i) {
        const sk::Volatile& x = a.volatiles[i];
        const sk::Volatile& y = r.volatiles[i];
        if (x.kind != y.kind || x.block != y.block || x.offset != y.offset || x.size != y.size)
            differ("volatile span", "", "");
    }
    for (std::size_t i = 0; i < sk::kProblems; ++i)
        if (a.error_counts[i] != r.errors[i])
            differ("errors", sk::name_of(static_cast<sk::Problem>(i)), a.canonical);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::uint8_t flags = data[0];
    const std::string text(reinterpret_cast<const char*>(data) + 1,
                           size - 1);  // exact: ASan sees over-reads
    const sk::BlockKind kind = (flags & 4) != 0   ? sk::BlockKind::kToolUse
                               : (flags & 2) != 0 ? sk::BlockKind::kToolResult
                                                  : sk::BlockKind::kText;
    const std::size_t cut = (flags & 8) != 0 ? text.size() / 2 : text.size();
    const std::string first = text.substr(0, cut);
    const std::string second = text.substr(cut);
    const sk::Block blocks[2] = {{.kind = kind, .text = first, .name = "tool"}, {.text = second}};
    const sk::Message message{.role = sk::Role::kUser,
                              .blocks = {blocks, cut < text.size() ? 2U : 1U}};
    const sk::Prompt prompt{.tools = flags & 1U, .messages = {&message, 1}};

    const sk::reference::Result slow = sk::reference::read(prompt, (flags & 1) != 0);
    static sk::Arena arena;
    sk::Options options{.strict = (flags & 1) != 0};
    compare(sk::analyze(prompt, arena, options), slow);
    options.portable = true;
    const sk::Analysis a = sk::analyze(prompt, arena, options);
    compare(a, slow);
    for (const sk::ParseError& e : a.errors) static_cast<void>(sk::describe(e, a.blocks[e.block]));
    static_cast<void>(sk::flat_form(a));
    static_cast<void>(sk::parse_template(text, (flags & 1) != 0, arena));
    return 0;
}
