#include "request/model_names.h"

#include <algorithm>
#include <tuple>

#include "base/ascii.h"

namespace zerohop {

std::size_t ModelNames::Hash::operator()(std::string_view name) const {
    std::uint64_t hash = 14695981039346656037U;  // FNV-1a
    for (const char c : name)
        hash = (hash ^ static_cast<unsigned char>(ascii_lower(c))) * 1099511628211U;
    return hash;
}

bool ModelNames::Equal::operator()(std::string_view a, std::string_view b) const {
    return equal_ignoring_case(a, b);
}

void ModelNames::add(std::string_view id, const std::vector<std::string>& aliases, bool fallback) {
    const std::size_t model = models_++;
    if (fallback && fallback_ == kNone) fallback_ = model;
    add_name(id, model);
    for (const std::string& alias : aliases) add_name(alias, model);
}

void ModelNames::add_name(std::string_view name, std::size_t model) {
    const std::size_t star = name.find('*');
    if (star == std::string_view::npos) {
        exact_.emplace(name, model);
        return;
    }
    const auto stars = static_cast<std::size_t>(std::ranges::count(name, '*'));
    const Pattern pattern{.text = std::string(name),
                          .model = model,
                          .letters = name.size() - stars,
                          .beginning = star};
    const auto less_specific = [&pattern](const Pattern& p) {
        return std::tie(p.letters, p.beginning) < std::tie(pattern.letters, pattern.beginning);
    };
    patterns_.insert(std::ranges::find_if(patterns_, less_specific), pattern);
}

std::size_t ModelNames::find_named(std::string_view name) const {
    if (name.size() > kMaxName) return kNone;
    if (const auto it = exact_.find(name); it != exact_.end()) return it->second;
    for (const Pattern& pattern : patterns_)
        if (matches_pattern(pattern.text, name)) return pattern.model;
    return kNone;
}

std::size_t ModelNames::find(std::string_view name) const {
    const std::size_t named = find_named(name);
    return named != kNone ? named : fallback_;
}

bool matches_pattern(std::string_view pattern, std::string_view name) {
    std::size_t p = 0, n = 0;
    std::size_t star = std::string_view::npos, after = 0;  // the last `*`, and where it ends so far
    while (n < name.size()) {
        if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            after = n;
        } else if (p < pattern.size() && ascii_lower(pattern[p]) == ascii_lower(name[n])) {
            ++p;
            ++n;
        } else if (star != std::string_view::npos) {
            p = star + 1;
            n = ++after;
        } else {
            return false;
        }
    }
    while (p < pattern.size() && pattern[p] == '*') ++p;
    return p == pattern.size();
}

}  // namespace zerohop
