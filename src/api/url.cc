#include "api/url.h"

#include <algorithm>

namespace zerohop::api {
namespace {

int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

}  // namespace

std::optional<std::string> percent_decode(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            out += text[i];
            continue;
        }
        if (i + 2 >= text.size()) return std::nullopt;
        const int high = hex_value(text[i + 1]);
        const int low = hex_value(text[i + 2]);
        if (high < 0 || low < 0) return std::nullopt;
        out += static_cast<char>(high * 16 + low);
        i += 2;
    }
    return out;
}

std::optional<QueryPairs> parse_query(std::string_view query) {
    constexpr std::size_t kMaxPairs = 256;
    QueryPairs pairs;
    while (!query.empty()) {
        const std::size_t end = std::min(query.find('&'), query.size());
        const std::string_view pair = query.substr(0, end);
        query.remove_prefix(std::min(end + 1, query.size()));
        if (pair.empty()) continue;
        if (pairs.size() == kMaxPairs) return std::nullopt;
        std::string spaced(pair);
        std::replace(spaced.begin(), spaced.end(), '+', ' ');
        const std::string_view view = spaced;
        const std::size_t equals = view.find('=');
        auto key = percent_decode(view.substr(0, equals));
        auto value = percent_decode(equals == std::string_view::npos ? std::string_view{}
                                                                     : view.substr(equals + 1));
        if (!key || !value) return std::nullopt;
        pairs.emplace_back(std::move(*key), std::move(*value));
    }
    return pairs;
}

}  // namespace zerohop::api
