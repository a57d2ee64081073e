// A small blocking HTTP/1.1 client for the subcommands that talk to a running server on clear text.
//
// Main thread only. Errors: kUnavailable when nobody listens (callers fall back or say how to start
// a server), kInternal for everything else, with words for a person.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace zerohop::cli {

struct Url {
    std::string host = "127.0.0.1";
    std::string port = "8080";
    std::string prefix;  // path in front of /v1
    std::string socket;  // path of a unix socket, instead of host and port
    std::string address() const { return socket.empty() ? host + ":" + port : "unix:" + socket; }
};

// "http://host:port/prefix" or "unix:/path"; https is refused with words (use curl, or the
// clear-text port).
Result<Url> parse_url(std::string_view text);

struct HttpReply {
    int status = 0;
    std::string body;  // empty when on_piece took it
};

// on_piece, when given, gets the body of a 2xx reply as it arrives.
Result<HttpReply> http_call(const Url& url, std::string_view method, std::string_view path,
                            std::string_view api_key, std::string_view body,
                            const std::function<void(std::string_view)>& on_piece = {});

// The message of an error body in the Anthropic shape, or the body itself.
std::string error_message_of(const HttpReply& reply);

}  // namespace zerohop::cli
