#include "wire/h1_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>

#include "wire/head.h"

namespace zerohop::wire {
namespace {

namespace http = boost::beast::http;
using boost::beast::error_code;
using BeastView = boost::beast::string_view;

std::string_view view(BeastView v) { return {v.data(), v.size()}; }

// Sizes and characters of the unfinished head in bytes[0, end).
std::optional<WireError> check_size(std::string_view bytes, const Limits& limits) {
    // The request line's end bounds the target (which also has a method and a version around it).
    if (bytes.size() > limits.target_bytes + 64 &&
        bytes.substr(0, limits.target_bytes + 64).find('\n') == std::string_view::npos)
        return WireError{414,
                         fmt::format("The request target exceeds {} bytes.", limits.target_bytes)};
    if (bytes.size() > limits.head_bytes)
        return WireError{431, fmt::format("The request head exceeds {} bytes.", limits.head_bytes)};
    return std::nullopt;
}

// One place where a line end may be: bytes[at] is CR, LF or NUL. 0: fine; -1: needs more; else bad.
enum class LineEnd { kGood, kMore, kBad };
LineEnd check_line_end(std::string_view bytes, std::size_t at) {
    if (bytes[at] != '\r') return LineEnd::kBad;  // bare LF or NUL
    if (at + 1 == bytes.size()) return LineEnd::kMore;
    if (bytes[at + 1] != '\n') return LineEnd::kBad;  // bare CR
    if (at + 2 == bytes.size()) return LineEnd::kMore;
    const char next = bytes[at + 2];
    return next == ' ' || next == '\t' ? LineEnd::kBad : LineEnd::kGood;  // obs-fold
}

}  // namespace

std::size_t find_head_end(std::string_view bytes, HeadScan& scan, const Limits& limits) {
    static constexpr std::string_view kStops("\r\n\0", 3);
    while (true) {
        const std::size_t at = bytes.find_first_of(kStops, scan.scanned);
        if (at == std::string_view::npos) {
            scan.scanned = bytes.size();
            break;
        }
        // The final line end needs no byte behind it.
        if (at >= 2 && bytes.substr(at - 2, 4) == "\r\n\r\n") {
            const std::size_t size = at + 2;
            scan.error = check_size(bytes.substr(0, size), limits);
            return scan.error ? 0 : size;
        }
        const LineEnd end = check_line_end(bytes, at);
        if (end == LineEnd::kBad) {
            scan.error =
                WireError{400, "The request head holds a bare CR or LF, a NUL or a folded line."};
            return 0;
        }
        scan.scanned = at;
        if (end == LineEnd::kMore) break;
        scan.scanned = at + 2;
    }
    scan.error = check_size(bytes, limits);
    return 0;
}

class H1Parser::Impl final : public http::basic_parser<true> {
  public:
    RequestHead* head = nullptr;  // set while the head is parsed; null: fields are trailers
    const Sink* sink = nullptr;
    bool transfer_encoding = false;
    bool http10 = false;
    std::size_t trailers = 0;

  private:
    void on_request_impl(http::verb, BeastView method, BeastView target, int version,
                         error_code&) override {
        head->method = view(method);
        head->target = view(target);
        http10 = version == 10;
    }
    void on_response_impl(int, BeastView, int, error_code&) override {}
    void on_field_impl(http::field, BeastView name, BeastView value, error_code&) override {
        if (head == nullptr) {
            ++trailers;
            return;
        }
        Header& header =
            head->headers.emplace_back(Header{std::string(view(name)), std::string(view(value))});
        for (char& c : header.name)
            if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
    }
    void on_header_impl(error_code&) override {}
    void on_body_init_impl(boost::optional<std::uint64_t> const&, error_code&) override {}
    std::size_t on_body_impl(BeastView body, error_code&) override {
        (*sink)(view(body));
        return body.size();
    }
    void on_chunk_header_impl(std::uint64_t, BeastView, error_code&) override {}
    std::size_t on_chunk_body_impl(std::uint64_t, BeastView body, error_code&) override {
        (*sink)(view(body));
        return body.size();
    }
    void on_finish_impl(error_code&) override {}
};

H1Parser::H1Parser() : impl_(std::make_unique<Impl>()) {}
H1Parser::~H1Parser() = default;

bool H1Parser::http10() const { return impl_->http10; }
bool H1Parser::wants_close() const { return impl_->http10 || !impl_->keep_alive(); }
bool H1Parser::done() const { return impl_->is_done(); }
std::optional<std::uint64_t> H1Parser::length_left() const {
    const auto left = impl_->content_length_remaining();
    if (!left) return std::nullopt;
    return *left;
}

namespace {

// A request line of three words whose last one is a version we do not speak.
bool other_version(std::string_view bytes) {
    const std::string_view line = bytes.substr(0, bytes.find('\r'));
    const std::string_view last = line.substr(line.rfind(' ') + 1);
    const auto digit = [](char c) { return c >= '0' && c <= '9'; };
    return std::ranges::count(line, ' ') == 2 && last.size() == 8 && last.starts_with("HTTP/") &&
           digit(last[5]) && last[6] == '.' && digit(last[7]);
}

std::optional<WireError> head_error(const error_code& ec, std::string_view bytes) {
    if (ec == http::error::bad_version && other_version(bytes))
        return WireError{505, "Only HTTP/1.0, 1.1 and 2 are served."};
    if (ec == http::error::header_limit) return WireError{431, "The request head is too large."};
    return WireError{400, fmt::format("The request head is malformed: {}.", ec.message())};
}

// Beast takes any list that ends in "chunked" and ignores codings it does not know.
std::optional<WireError> check_transfer_encoding(const RequestHead& head, bool http10,
                                                 bool& found) {
    for (const Header& h : head.headers) {
        if (h.name != "transfer-encoding") continue;
        if (http10 || found) return WireError{400, "transfer-encoding is not allowed here."};
        std::string lower = h.value;
        for (char& c : lower)
            if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
        if (lower != "chunked") return WireError{501, "transfer-encoding must be chunked."};
        found = true;
    }
    return std::nullopt;
}

}  // namespace

std::optional<WireError> H1Parser::parse_head(std::string_view bytes, const Limits& limits,
                                              RequestHead& head) {
    impl_->head = &head;
    impl_->eager(false);
    impl_->body_limit(boost::none);
    impl_->header_limit(static_cast<std::uint32_t>(bytes.size() + 1));
    error_code ec;
    const std::size_t used = impl_->put(boost::asio::buffer(bytes.data(), bytes.size()), ec);
    impl_->head = nullptr;
    impl_->eager(true);
    if (ec) return head_error(ec, bytes);
    if (!impl_->is_header_done() || used != bytes.size())
        return WireError{400, "The request head is malformed."};
    bool chunked = false;
    if (auto bad = check_transfer_encoding(head, impl_->http10, chunked)) return bad;
    if (chunked != impl_->chunked()) return WireError{400, "transfer-encoding is malformed."};
    if (auto bad = finish_head(head, limits, chunked)) return bad;
    head.has_body = chunked || head.content_length > 0;
    if (head.has_body == impl_->is_done()) return WireError{400, "The request head is malformed."};
    return std::nullopt;
}

H1Parser::Fed H1Parser::feed(std::string_view bytes, const Sink& sink) {
    Fed fed;
    if (bytes.empty()) return fed;
    // Beast asserts that a last chunk's header comes back with at least its 5 bytes ("0", CRLF,
    // CRLF).
    if (gave_back_ && impl_->chunked() && bytes.size() < 5) return fed;
    impl_->sink = &sink;
    error_code ec;
    fed.consumed = impl_->put(boost::asio::buffer(bytes.data(), bytes.size()), ec);
    impl_->sink = nullptr;
    gave_back_ = fed.consumed < bytes.size();
    if (ec && ec != http::error::need_more)
        fed.error = WireError{400, fmt::format("The request body is malformed: {}.", ec.message())};
    return fed;
}

}  // namespace zerohop::wire
