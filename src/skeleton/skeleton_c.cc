#include "skeleton/skeleton_c.h"

#include <algorithm>
#include <new>
#include <vector>

#include "skeleton/skeleton.h"

namespace sk = zerohop::skeleton;

struct zh_skeleton {
    sk::Arena arena;
    std::vector<sk::Block> blocks;
    std::vector<sk::Message> messages;
};

namespace {

sk::Options options_of(int flags) {
    return {.strict = (flags & ZH_SKELETON_STRICT) != 0,
            .template_text = (flags & ZH_SKELETON_TEMPLATE) != 0};
}
void give(const sk::Analysis& a, zh_skeleton_result* out) {
    *out = {a.canonical.data(), a.canonical.size(), a.whole.high,        a.whole.low,
            a.last_turn.high,   a.last_turn.low,    a.system_tools.high, a.system_tools.low,
            a.complexity,       a.volatile_count,   a.error_count};
}

}  // namespace

zh_skeleton* zh_skeleton_new(void) { return new (std::nothrow) zh_skeleton; }
void zh_skeleton_free(zh_skeleton* skeleton) { delete skeleton; }

void zh_skeleton_text(zh_skeleton* skeleton, const char* text, size_t size, int flags,
                      zh_skeleton_result* out) {
    give(sk::analyze_text({text, size}, skeleton->arena, options_of(flags)), out);
}

void zh_skeleton_messages(zh_skeleton* skeleton, unsigned tools, const zh_skeleton_block* blocks,
                          size_t count, int flags, zh_skeleton_result* out) {
    skeleton->blocks.clear();
    skeleton->messages.clear();
    skeleton->blocks.reserve(count);  // spans point into it
    for (size_t i = 0; i < count; ++i) {
        const zh_skeleton_block& b = blocks[i];
        skeleton->blocks.push_back({static_cast<sk::BlockKind>(std::clamp(b.kind, 0, 3)),
                                    {b.text, b.text_size},
                                    {b.name, b.name_size}});
        const bool same =
            i > 0 && blocks[i - 1].message == b.message && blocks[i - 1].role == b.role;
        if (!same)
            skeleton->messages.push_back({static_cast<sk::Role>(std::clamp(b.role, 0, 2)),
                                          {skeleton->blocks.data() + i, 0}});
        sk::Message& m = skeleton->messages.back();
        m.blocks = {m.blocks.data(), m.blocks.size() + 1};
    }
    give(sk::analyze({tools, skeleton->messages}, skeleton->arena, options_of(flags)), out);
}
