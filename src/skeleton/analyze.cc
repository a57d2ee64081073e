// The entry point: picks the scanner the machine can run, then writes the canonical form.
#include <fmt/format.h>

#include "skeleton/arena.h"
#include "skeleton/languages.h"
#include "skeleton/scan.h"
#include "skeleton/scanner_deps.h"

namespace zerohop::skeleton {
namespace {

using Scan = void (*)(const Prompt&, Arena::State&, const Options&);

bool has_avx2() {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("lzcnt") &&
           __builtin_cpu_supports("popcnt");
#else
    return false;
#endif
}

Scan fastest() {
#if defined(__x86_64__)
    static const Scan chosen = has_avx2() ? scan_avx2 : scan_portable;
    return chosen;
#else
    return scan_portable;
#endif
}

}  // namespace

Arena::Arena() : state_(std::make_unique<State>()) {}
Arena::~Arena() = default;
Arena::Arena(Arena&&) noexcept = default;
Arena& Arena::operator=(Arena&&) noexcept = default;

std::size_t Arena::bytes() const {
    return state_->nodes.capacity_bytes() + state_->blocks.capacity_bytes() +
           state_->names.capacity_bytes() + state_->shapes.capacity_bytes() +
           state_->canonical.capacity_bytes() + state_->volatiles.capacity_bytes() +
           state_->errors.capacity_bytes();
}
void Arena::shrink(std::size_t keep_bytes) {
    if (bytes() > keep_bytes) state_ = std::make_unique<State>();
}

Analysis analyze(const Prompt& prompt, Arena& arena, const Options& options) {
    Arena::State& s = arena.state();
    s.reset();
    (options.portable ? scan_portable : fastest())(prompt, s, options);
    Analysis out;
    write_canonical(s, out);
    out.nodes = {s.nodes.data(), s.nodes.size()};
    out.blocks = {s.blocks.data(), s.blocks.size()};
    out.names = {s.names.data(), s.names.size()};
    out.shapes = {s.shapes.data(), s.shapes.size()};
    out.volatiles = {s.volatiles.data(), s.volatiles.size()};
    out.volatile_count = s.volatile_count;
    out.errors = {s.errors.data(), s.errors.size()};
    out.error_counts = s.error_counts;
    out.error_count = s.error_count;
    return out;
}

Analysis analyze_text(std::string_view text, Arena& arena, const Options& options) {
    const Block block{.kind = BlockKind::kText, .text = text};
    const Message message{.role = Role::kUser, .blocks = {&block, 1}};
    return analyze({.tools = 0, .messages = {&message, 1}}, arena, options);
}

std::string Key::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

std::string header_value(const Analysis& analysis) {
    return fmt::format("key={};complexity={};volatile={}", analysis.whole.hex(),
                       analysis.complexity, analysis.volatile_count);
}

std::string_view implementation() { return has_avx2() ? "avx2" : "portable"; }

std::size_t tables_bytes() {
    // Besides the languages: character classes (here and of the volatile matcher), the sets of
    // scanner_deps.h, and the three UTF-8 tables.
    return language_table_bytes() + sizeof(kCharClass) + 256 + 9 * sizeof(CharSet) + 3 * 16;
}

std::string_view language_name(const Analysis& analysis, const Node& node, std::string& scratch) {
    const auto lang = static_cast<Lang>(node.sub);
    if (lang != Lang::kOther) return lang_name(lang);
    std::string_view shown;
    const std::string_view tag = analysis.blocks[node.block].substr(node.name, node.name_size);
    static_cast<void>(lang_from_tag(tag, shown));
    if (!shown.empty()) return shown;
    scratch.clear();
    for (const char c : tag) scratch += c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
    return scratch;
}

}  // namespace zerohop::skeleton
