// Differential: one request, written as HTTP/1.1 and as HTTP/2, gives the same RequestHead and body
// apart from the protocol, or is refused by both.
//
// Input: lines "method", "target", "authority", "name:value" …, then an empty line and the body.
#include <nghttp2/nghttp2.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "wire/testing/echo.h"

namespace {

using zerohop::wire::RequestHead;
using zerohop::wire::testing::Driver;

struct Request {
    std::string method, target, authority, body;
    std::vector<std::pair<std::string, std::string>> fields;
};

Request read(std::string_view text) {
    Request r;
    std::vector<std::string_view> lines;
    while (true) {
        const auto end = text.find('\n');
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        if (line.empty()) break;
        lines.push_back(line);
    }
    r.body = text.substr(0, 4096);
    if (!lines.empty()) r.method = lines[0];
    if (lines.size() > 1) r.target = lines[1];
    if (lines.size() > 2) r.authority = lines[2];
    for (std::size_t i = 3; i < lines.size(); ++i) {
        const auto colon = lines[i].find(':');
        if (colon == std::string_view::npos || colon == 0) continue;
        std::string name(lines[i].substr(0, colon));
        for (char& c : name)
            if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
        r.fields.emplace_back(std::move(name), lines[i].substr(colon + 1));
    }
    return r;
}

// HTTP/1.1 trims white space around a value, HTTP/2 refuses it (RFC 9113 §8.2.1).
bool padded(std::string_view value) {
    const auto blank = [](char c) { return c == ' ' || c == '\t'; };
    return !value.empty() && (blank(value.front()) || blank(value.back()));
}

// What the two protocols rightly treat differently, or what the writers themselves add.
bool comparable(const Request& r) {
    static constexpr std::string_view kOwn[] = {"host",
                                                "connection",
                                                "keep-alive",
                                                "proxy-connection",
                                                "te",
                                                "transfer-encoding",
                                                "upgrade",
                                                "content-length",
                                                "http2-settings",
                                                "priority"};
    if (r.method.empty() || r.target.empty() || r.authority.empty() || padded(r.authority))
        return false;
    if (r.method == "CONNECT" || r.method == "PRI" || r.target.front() != '/') return false;
    for (const auto& [name, value] : r.fields) {
        for (const std::string_view own : kOwn)
            if (name == own) return false;
        if (padded(value)) return false;
    }
    return true;
}

void feed_h1(Driver& d, const Request& r) {
    std::string text = r.method + " " + r.target + " HTTP/1.1\r\nhost: " + r.authority + "\r\n";
    for (const auto& [name, value] : r.fields) text += name + ":" + value + "\r\n";
    if (!r.body.empty()) text += "content-length: " + std::to_string(r.body.size()) + "\r\n";
    d.feed(text + "\r\n" + r.body);
}

void feed_h2(Driver& d, const Request& r) {
    std::string bytes(zerohop::wire::kH2Preface);
    bytes += std::string("\0\0\0\4\0\0\0\0\0", 9);
    const std::string length = std::to_string(r.body.size());
    std::vector<std::pair<std::string, std::string>> fields = {{":method", r.method},
                                                               {":scheme", "http"},
                                                               {":authority", r.authority},
                                                               {":path", r.target}};
    fields.insert(fields.end(), r.fields.begin(), r.fields.end());
    if (!r.body.empty()) fields.emplace_back("content-length", length);
    std::vector<nghttp2_nv> nva;
    for (auto& [n, v] : fields)
        nva.push_back({reinterpret_cast<std::uint8_t*>(n.data()),
                       reinterpret_cast<std::uint8_t*>(v.data()), n.size(), v.size(), 0});
    nghttp2_hd_deflater* deflater = nullptr;
    nghttp2_hd_deflate_new(&deflater, 4096);
    std::string block(nghttp2_hd_deflate_bound(deflater, nva.data(), nva.size()), '\0');
    const ssize_t n = nghttp2_hd_deflate_hd(deflater, reinterpret_cast<std::uint8_t*>(block.data()),
                                            block.size(), nva.data(), nva.size());
    nghttp2_hd_deflate_del(deflater);
    block.resize(static_cast<std::size_t>(n));
    const auto frame = [&](char type, char flags, std::string_view payload) {
        bytes += static_cast<char>(payload.size() >> 16);
        bytes += static_cast<char>(payload.size() >> 8 & 0xff);
        bytes += static_cast<char>(payload.size() & 0xff);
        bytes += type;
        bytes += flags;
        bytes += std::string("\0\0\0\1", 4);
        bytes += payload;
    };
    frame(1, r.body.empty() ? 5 : 4, block);
    if (!r.body.empty()) frame(0, 1, r.body);
    d.feed(bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size > 12'000) return 0;  // one HEADERS frame
    const Request r = read({reinterpret_cast<const char*>(data), size});
    if (!comparable(r)) return 0;
    Driver h1(false);
    Driver h2(true);
    h1.stop_after = h2.stop_after = 256 * 1024;
    feed_h1(h1, r);
    feed_h2(h2, r);
    const std::vector<RequestHead> a = h1.echo.heads();
    const std::vector<RequestHead> b = h2.echo.heads();
    ZH_CHECK(a.size() == b.size());
    if (a.empty()) return 0;
    ZH_CHECK(a.size() == 1);
    ZH_CHECK(a[0].method == b[0].method);
    ZH_CHECK(a[0].target == b[0].target);
    ZH_CHECK(a[0].authority == b[0].authority);
    ZH_CHECK(a[0].headers.size() == b[0].headers.size());
    for (std::size_t i = 0; i < a[0].headers.size(); ++i) {
        ZH_CHECK(a[0].headers[i].name == b[0].headers[i].name);
        ZH_CHECK(a[0].headers[i].value == b[0].headers[i].value);
    }
    ZH_CHECK(a[0].content_length == b[0].content_length);
    ZH_CHECK(a[0].has_body == b[0].has_body);
    ZH_CHECK(a[0].expects_continue == b[0].expects_continue);
    ZH_CHECK(h1.echo.bodies() == h2.echo.bodies());
    return 0;
}
