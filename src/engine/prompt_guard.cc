#include "engine/prompt_guard.h"

#include <fmt/format.h>

#include <charconv>

namespace zerohop::engine {
namespace {

constexpr std::string_view kOpen = "\xF3\xB0\x80\xBE";   // U+F003E
constexpr std::string_view kClose = "\xF3\xB0\x80\xBF";  // U+F003F

}  // namespace

// Both patterns are looked for again only once the text has passed the place found before:
// searching each anew per match would read the rest of the text once per match.
std::string PromptGuard::hide(std::string_view text) {
    std::string out;
    std::size_t at = 0;
    SpecialMatch special{.begin = 0, .end = 0, .token = -1};
    std::size_t open = 0;
    bool special_left = specials_.find(text, 0, special);
    open = text.find(kOpen);
    while (special_left || open != std::string_view::npos) {
        const bool first_open = !special_left || open < special.begin;  // npos is never less
        const std::size_t begin = first_open ? open : special.begin;
        const std::size_t end = first_open ? open + kOpen.size() : special.end;
        out.append(text.substr(at, begin - at));
        out += fmt::format("{}{}{}", kOpen, originals_.size(), kClose);
        originals_.emplace_back(text.substr(begin, end - begin));
        at = end;
        if (special_left && special.begin < at) special_left = specials_.find(text, at, special);
        if (open != std::string_view::npos && open < at) open = text.find(kOpen, at);
    }
    return out.append(text.substr(at));
}

Prompt PromptGuard::reveal(const Prompt& prompt) const {
    Prompt out;
    for (const PromptSpan& span : prompt) {
        std::size_t at = 0;
        for (std::size_t open = 0; (open = span.text.find(kOpen, at)) != std::string::npos;) {
            const char* const digits = span.text.data() + open + kOpen.size();
            const char* const last = span.text.data() + span.text.size();
            std::size_t index = originals_.size();
            const auto [end, error] = std::from_chars(digits, last, index);
            const std::string_view rest(end, static_cast<std::size_t>(last - end));
            const bool whole =
                error == std::errc() && index < originals_.size() && rest.starts_with(kClose);
            out.push_back({span.text.substr(at, open - at), span.input});
            // Else it was cut in half by the template.
            out.push_back({whole ? originals_[index] : std::string(kOpen), true});
            at = whole ? static_cast<std::size_t>(end - span.text.data()) + kClose.size()
                       : open + kOpen.size();
        }
        out.push_back({span.text.substr(at), span.input});
    }
    return out;
}

}  // namespace zerohop::engine
