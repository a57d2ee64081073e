#include "engine/null_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace zerohop::engine {
namespace {

constexpr std::string_view kDirective = "null:";
constexpr std::string_view kDefaultText =
    " the quick brown fox jumps over the lazy dog and runs into the wide green forest";

bool is_space(char c) { return static_cast<unsigned char>(c) <= ' '; }

std::unexpected<Error> bad(std::string_view key, std::string_view value) {
    return fail(Code::kInvalidRequest, "engine",
                fmt::format("null engine: \"{}={}\" is not understood", key, value));
}

template <class Int>
bool read_int(std::string_view text, Int& out) {
    Int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0) return false;
    out = value;
    return true;
}

bool read_number(std::string_view text, double& out) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    return error == std::errc() && end == text.data() + text.size() && out >= 0 && out < 1e9;
}

bool read_ms(std::string_view text, std::int64_t& out_ns) {
    double ms = 0;
    if (!read_number(text, ms)) return false;
    out_ns = static_cast<std::int64_t>(ms * static_cast<double>(kNsPerMs));
    return true;
}

std::optional<Code> code_named(std::string_view name) {
    struct Named {
        std::string_view name;
        Code code;
    };
    static constexpr Named kCodes[] = {
        {"overloaded", Code::kOverloaded},   {"internal", Code::kInternal},
        {"unavailable", Code::kUnavailable}, {"timeout", Code::kTimeout},
        {"invalid", Code::kInvalidRequest},  {"permission", Code::kPermission},
        {"not_found", Code::kNotFound},      {"rate_limited", Code::kRateLimited},
    };
    for (const Named& named : kCodes)
        if (named.name == name) return named.code;
    return std::nullopt;
}

bool read_end(std::string_view value, StopReason& out) {
    if (value == "end_turn")
        out = StopReason::kEndTurn;
    else if (value == "max_tokens")
        out = StopReason::kMaxTokens;
    else if (value == "context")
        out = StopReason::kContextWindow;
    else
        return false;
    return true;
}

// Keys both the config and a request know.
bool set_script(NullScript& script, std::string_view key, std::string_view value, bool& known) {
    known = true;
    double rate = 0;
    if (key == "tokens") return read_int(value, script.tokens);
    if (key == "delay_ms") return read_ms(value, script.delay_ns);
    if (key == "prefill_ms") return read_ms(value, script.prefill_ns);
    if (key == "chunk") return read_int(value, script.chunk);
    if (key == "retry_after_ms") return read_int(value, script.retry_after_ms);
    if (key == "tokens_per_s") {
        if (!read_number(value, rate) || rate <= 0) return false;
        script.delay_ns = static_cast<std::int64_t>(static_cast<double>(kNsPerSec) / rate);
        return true;
    }
    if (key == "text") {
        script.text = value;
        return true;
    }
    known = false;
    return false;
}

bool set_directive(NullScript& script, std::string_view key, std::string_view value) {
    if (key == "echo") {
        script.echo = value == "1";
        return value == "0" || value == "1";
    }
    if (key == "fail") return (script.fail = code_named(value)).has_value();
    if (key == "fail_after") return read_int(value, script.fail_after);
    if (key == "end") return read_end(value, script.end);
    return false;
}

std::string echoed(const Request& request) {
    std::string out;
    for (const Turn& turn : request.turns)
        out += fmt::format("[{}]{}", name_of(turn.role), text_of(turn));
    return out;
}

}  // namespace

Result<NullConfig> parse_null_config(std::string_view config) {
    NullConfig out;
    if (config == "null" || config.empty()) return out;
    if (config.starts_with(kDirective)) config.remove_prefix(kDirective.size());
    while (!config.empty()) {
        const std::string_view pair = config.substr(0, config.find(','));
        config.remove_prefix(std::min(pair.size() + 1, config.size()));
        if (pair.empty()) continue;
        const std::size_t equals = std::min(pair.find('='), pair.size());
        const std::string_view key = pair.substr(0, equals);
        const std::string_view value = pair.substr(std::min(equals + 1, pair.size()));
        bool known = false;
        bool ok = set_script(out.script, key, value, known);
        if (!known) {
            if (key == "context")
                ok = read_int(value, out.context) && out.context > 0;
            else if (key == "slots")
                ok = read_int(value, out.slots) && out.slots > 0;
            else if (key == "queue")
                ok = read_int(value, out.queue);
            else if (key == "id")
                ok = !(out.id = value).empty();
        }
        if (!ok) return bad(key, value);
    }
    return out;
}

Result<NullScript> script_for(const NullScript& defaults, const Request& request) {
    NullScript script = defaults;
    const auto turn = std::find_if(request.turns.rbegin(), request.turns.rend(),
                                   [](const Turn& t) { return t.role == Role::kUser; });
    if (turn == request.turns.rend() || turn->parts.empty()) return script;
    if (!turn->parts.front().starts_with(kDirective)) return script;
    const std::string text = text_of(*turn);

    std::string_view rest = std::string_view(text).substr(kDirective.size());
    while (!rest.empty()) {
        if (is_space(rest.front())) {
            rest.remove_prefix(1);
            continue;
        }
        const auto end = std::find_if(rest.begin(), rest.end(), is_space);
        std::string_view pair = rest.substr(0, static_cast<std::size_t>(end - rest.begin()));
        if (pair.starts_with("text=")) pair = rest;
        rest.remove_prefix(pair.size());
        const std::size_t equals = std::min(pair.find('='), pair.size());
        const std::string_view key = pair.substr(0, equals);
        const std::string_view value = pair.substr(std::min(equals + 1, pair.size()));
        bool known = false;
        const bool ok =
            set_script(script, key, value, known) || (!known && set_directive(script, key, value));
        if (!ok) return bad(key, value);
    }
    if (script.echo) script.text = echoed(request);
    return script;
}

std::vector<std::string> pieces_of(const NullScript& script) {
    const std::string_view text = script.text.empty() ? kDefaultText : script.text;
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < text.size();) {
        std::size_t end = at + 1;
        if (script.chunk > 0) {
            end = std::min(text.size(), at + static_cast<std::size_t>(script.chunk));
        } else {
            while (end < text.size() && is_space(text[end - 1]) && is_space(text[end])) ++end;
            while (end < text.size() && !is_space(text[end])) ++end;
        }
        pieces.emplace_back(text.substr(at, end - at));
        at = end;
    }
    return pieces;
}

std::int32_t count_input(const Request& request) {
    std::int32_t count = 3;
    for (const Turn& turn : request.turns) {
        count += 4;
        for (const std::string& part : turn.parts) {  // a line end between them: no word spans two
            if (part.empty()) continue;
            count += is_space(part.front()) ? 0 : 1;
            // Without a branch or a carried state: the compiler makes vectors of it.
            std::uint32_t starts = 0;
            for (std::size_t i = 1; i < part.size(); ++i)
                starts += static_cast<std::uint32_t>(is_space(part[i - 1])) &
                          static_cast<std::uint32_t>(!is_space(part[i]));
            count += static_cast<std::int32_t>(starts);
        }
    }
    return count;
}

}  // namespace zerohop::engine
