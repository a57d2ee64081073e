// Optimizer for prompt templates: named rules that make a prompt flatter and its reusable prefix
// longer. Text in, text out; it reports every change and never makes one whose rule is switched
// off.
//
// Threads: any; allocates (a tool for people, not for the I/O thread). Nothing fails: a rule that
// cannot be sure leaves the text alone and says so in `notes`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zerohop::skeleton {

enum class Rule : std::uint8_t {
    kMergeText,      // adjacent <text>, <p> or <span> elements of text alone become one
    kUnwrapDoubled,  // <x><x>…</x></x> becomes <x>…</x>
    kDropEmpty,      // <x></x> goes, unless it is <x/> (a placeholder) or an anchor
    kPlaceholders,   // volatile values become <timestamp/>, <uuid/>, …
    kRoleTags,       // long descriptions become tags, where a rule file says so
    kConstantFirst,  // paragraphs with {variables} move behind those without, within one role
};
inline constexpr std::size_t kRules = 6;
std::string_view name_of(Rule rule);  // "merge-text", "unwrap-doubled", …

struct OptimizeOptions {
    std::uint32_t off = 0;                                        // bit per Rule
    std::vector<std::pair<std::string, std::string>> role_rules;  // text -> what replaces it
};

struct Change {
    Rule rule;
    std::uint32_t line = 0;  // in the text as it was when the rule ran
    std::string what;
};

struct Optimized {
    std::string text;
    std::vector<Change> changes;
    std::vector<std::string> notes;
    int complexity_before = 0;
    int complexity_after = 0;
    std::size_t reusable_before = 0;  // bytes before the first variable or volatile value
    std::size_t reusable_after = 0;
};

Optimized optimize(std::string_view text, const OptimizeOptions& options);

// Where the prefix that calls share ends: the first {variable} or volatile value, or the end.
std::size_t reusable_prefix(std::string_view text);
// The next {name}, {{name}} or ${name} at or after `from`; npos and size 0 when there is none.
std::pair<std::size_t, std::size_t> next_variable(std::string_view text, std::size_t from);

// "role rule file": lines of `text => <role>name</role>`; # starts a comment. Bad lines are named.
std::vector<std::pair<std::string, std::string>> parse_role_rules(std::string_view file,
                                                                  std::vector<std::string>& bad);

}  // namespace zerohop::skeleton
