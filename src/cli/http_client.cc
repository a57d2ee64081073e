#include "cli/http_client.h"

#include <fmt/format.h>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <nlohmann/json.hpp>

namespace zerohop::cli {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

using Socket = asio::generic::stream_protocol::socket;

void connect_to(const Url& url, asio::io_context& io, Socket& socket,
                boost::system::error_code& ec) {
    if (!url.socket.empty()) {
        socket.connect(asio::local::stream_protocol::endpoint(url.socket), ec);
        return;
    }
    for (const auto& entry : asio::ip::tcp::resolver(io).resolve(url.host, url.port, ec)) {
        socket.close(ec);
        if (!socket.connect(entry.endpoint(), ec)) return;
    }
}

Result<HttpReply> read_reply(Socket& socket,
                             const std::function<void(std::string_view)>& on_piece) {
    boost::beast::flat_buffer buffer;
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(boost::none);
    boost::system::error_code ec;
    http::read_header(socket, buffer, parser, ec);
    if (ec)
        return fail(Code::kInternal, "cli",
                    fmt::format("the server's answer broke off: {}", ec.message()));
    HttpReply reply{.status = static_cast<int>(parser.get().result_int()), .body = {}};
    char piece[8192];
    while (!parser.is_done()) {
        parser.get().body().data = piece;
        parser.get().body().size = sizeof piece;
        http::read_some(socket, buffer, parser, ec);
        if (ec == http::error::need_buffer) ec = {};
        if (ec)
            return fail(Code::kInternal, "cli",
                        fmt::format("the server's answer broke off: {}", ec.message()));
        const std::string_view got(piece, sizeof piece - parser.get().body().size);
        if (on_piece && reply.status / 100 == 2) {
            on_piece(got);
        } else {
            reply.body += got;
        }
    }
    return reply;
}

}  // namespace

Result<Url> parse_url(std::string_view text) {
    Url url;
    if (text.starts_with("https://"))
        return fail(
            Code::kInvalidRequest, "cli",
            "https is not spoken here: use the clear-text address, e.g. http://127.0.0.1:8080");
    if (text.starts_with("unix:")) {
        url.socket = text.substr(5);
        url.host = "localhost";
        return url;
    }
    if (text.starts_with("http://")) text.remove_prefix(7);
    const std::size_t slash = text.find('/');
    if (slash != std::string_view::npos) {
        url.prefix = text.substr(slash);
        while (url.prefix.ends_with('/')) url.prefix.pop_back();
        text = text.substr(0, slash);
    }
    const std::size_t colon = text.rfind(':');
    if (colon != std::string_view::npos && text.find(']', colon) == std::string_view::npos) {
        url.port = text.substr(colon + 1);
        text = text.substr(0, colon);
    }
    if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
    if (text.empty()) return fail(Code::kInvalidRequest, "cli", "the URL names no host");
    url.host = text;
    return url;
}

Result<HttpReply> http_call(const Url& url, std::string_view method, std::string_view path,
                            std::string_view api_key, std::string_view body,
                            const std::function<void(std::string_view)>& on_piece) {
    try {
        asio::io_context io;
        Socket socket(io);
        boost::system::error_code ec;
        connect_to(url, io, socket, ec);
        if (ec)
            return fail(Code::kUnavailable, "cli",
                        fmt::format("no server answers at {} ({})", url.address(), ec.message()));
        http::request<http::string_body> request;
        request.method_string(method);
        request.target(url.prefix + std::string(path));
        const bool v6 = url.host.find(':') != std::string::npos;
        request.set(http::field::host, v6 ? "[" + url.host + "]" : url.host);
        request.set("anthropic-version", "2023-06-01");
        if (!api_key.empty()) request.set("x-api-key", api_key);
        request.set(http::field::content_type, "application/json");
        request.keep_alive(false);
        request.body() = body;
        request.prepare_payload();
        http::write(socket, request, ec);
        if (ec)
            return fail(Code::kInternal, "cli",
                        fmt::format("the request could not be sent: {}", ec.message()));
        return read_reply(socket, on_piece);
    } catch (const std::exception& e) {
        return fail(Code::kInternal, "cli", e.what());
    }
}

std::string error_message_of(const HttpReply& reply) {
    const auto json = nlohmann::json::parse(reply.body, nullptr, false);
    if (json.is_object() && json.contains("error") && json["error"].is_object() &&
        json["error"].contains("message") && json["error"]["message"].is_string())
        return fmt::format("{} (HTTP {})", json["error"]["message"].get<std::string>(),
                           reply.status);
    return fmt::format("HTTP {}: {}", reply.status, reply.body.substr(0, 300));
}

}  // namespace zerohop::cli
