// ModelNames: which model a name means. The one rule for hints, bodies, scopes and lists.
//
// ASCII case never matters. An id or alias goes before every pattern (an alias with `*` in it, each
// standing for any text, also none); of several patterns that match, the one with the most
// characters besides `*`, then the one that is longer before its first `*`, then the earlier one.
// What nothing matches is the fallback's, where there is one.
//
// Immutable; any thread reads it. A look-up neither allocates nor fails; patterns are tried on
// names of at most kMaxName bytes only, so its time is bounded by what is configured.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace zerohop {

class ModelNames {
  public:
    static constexpr std::size_t kNone = ~std::size_t{0};
    static constexpr std::size_t kMaxName = 128;  // bytes; no id or alias is longer

    // Of models in their order; of two equal names the first model keeps it.
    void add(std::string_view id, const std::vector<std::string>& aliases, bool fallback);

    // The model's place in the order of add(); kNone.
    std::size_t find(std::string_view name) const;
    // The same without the fallback: what somebody has named. Scopes are such names.
    std::size_t find_named(std::string_view name) const;

  private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view name) const;
    };
    struct Equal {
        using is_transparent = void;
        bool operator()(std::string_view a, std::string_view b) const;
    };
    struct Pattern {
        std::string text;
        std::size_t model = 0;
        std::size_t letters = 0;  // besides `*`
        std::size_t beginning = 0;
    };
    void add_name(std::string_view name, std::size_t model);

    std::unordered_map<std::string, std::size_t, Hash, Equal> exact_;
    std::vector<Pattern> patterns_;  // the most specific first
    std::size_t models_ = 0;
    std::size_t fallback_ = kNone;
};

// Whether `name` is what `pattern` stands for. At most pattern × name steps.
bool matches_pattern(std::string_view pattern, std::string_view name);

}  // namespace zerohop
