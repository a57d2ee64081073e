#include "api/skeleton_step.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <bit>
#include <vector>

#include "base/log.h"

namespace zerohop::api {
namespace {

// What an arena may keep for the next request; a great prompt's memory is given back.
constexpr std::size_t kKeptArenaBytes = 1024 * 1024;

skeleton::Role role_of(Role role) {
    if (role == Role::kSystem) return skeleton::Role::kSystem;
    return role == Role::kAssistant ? skeleton::Role::kAssistant : skeleton::Role::kUser;
}

// Of all anchors' contents in their order, length first; 0 without any.
StructureKey anchors_of(const skeleton::Analysis& analysis) {
    StructureKey key;
    for (const skeleton::Node& node : analysis.nodes) {
        if (node.kind != skeleton::Kind::kAnchor) continue;
        const std::string_view content =
            analysis.blocks[node.block].substr(node.name, node.name_size);
        const std::uint64_t chained[] = {key.lo, key.hi, content.size()};
        const std::uint64_t seed = XXH3_64bits(chained, sizeof chained);
        const XXH128_hash_t hash = XXH3_128bits_withSeed(content.data(), content.size(), seed);
        key = {.lo = hash.low64, .hi = hash.high64};
    }
    return key;
}

StructureKey mixed(const skeleton::Key& key, const StructureKey& anchors) {
    if (anchors.empty()) return {.lo = key.low, .hi = key.high};
    const std::uint64_t both[] = {key.low, key.high, anchors.lo, anchors.hi};
    const XXH128_hash_t hash = XXH3_128bits(both, sizeof both);
    return {.lo = hash.low64, .hi = hash.high64};
}

}  // namespace

Result<SkeletonSummary> SkeletonStep::read(const Request& request, bool strict) {
    thread_local skeleton::Arena arena;
    thread_local std::vector<skeleton::Block> blocks;
    thread_local std::vector<skeleton::Message> messages;
    blocks.clear();
    messages.clear();
    for (const Turn& turn : request.turns)
        for (const std::string& part : turn.parts) blocks.push_back({.text = part});
    std::size_t next = 0;
    for (const Turn& turn : request.turns) {
        messages.push_back({.role = role_of(turn.role),
                            .blocks = std::span(blocks).subspan(next, turn.parts.size())});
        next += turn.parts.size();
    }
    const skeleton::Analysis analysis =
        skeleton::analyze({.messages = messages}, arena, {.strict = strict});
    if (analysis.error_count > 0) count(analysis, request.id);
    const StructureKey anchors = anchors_of(analysis);
    Result<SkeletonSummary> out = SkeletonSummary{
        .whole = analysis.whole,
        .last_turn = analysis.last_turn,
        .system_tools = analysis.system_tools,
        .structure = {mixed(analysis.whole, anchors), mixed(analysis.last_turn, anchors),
                      mixed(analysis.system_tools, anchors)},
        .header = skeleton::header_value(analysis)};
    if (strict && !analysis.errors.empty()) {
        const skeleton::ParseError& first = analysis.errors.front();
        out = fail(Code::kInvalidRequest, "skeleton",
                   skeleton::describe(first, analysis.blocks[first.block]));
    }
    arena.shrink(kKeptArenaBytes);
    return out;
}

// By what may begin a node of the tree, and what an arena grew to for each (skeleton_step_test.cc).
std::size_t SkeletonStep::scratch_bytes(const Request& request) {
    constexpr std::size_t kPerNode = 128;
    std::size_t nodes = 0;
    for (const Turn& turn : request.turns)
        for (const std::string& part : turn.parts) {
            ++nodes;
            for (const char c : part)
                nodes += static_cast<std::size_t>(c == '<' || c == '#' || c == '{' || c == '[' ||
                                                  c == '`');
        }
    return nodes * kPerNode;
}

// One log line per doubling and kind: seen, without drowning the log.
void SkeletonStep::count(const skeleton::Analysis& analysis, const std::string& request_id) {
    for (std::size_t i = 0; i < skeleton::kProblems; ++i) {
        const std::uint64_t n = analysis.error_counts[i];
        if (n == 0) continue;
        const std::uint64_t before = counts_[i].fetch_add(n, std::memory_order_relaxed);
        if (std::bit_width(before) != std::bit_width(before + n))
            log_info("skeleton", "{}: {} in all, last in {}",
                     skeleton::name_of(static_cast<skeleton::Problem>(i)), before + n, request_id);
    }
}

}  // namespace zerohop::api
