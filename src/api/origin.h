// Names of this machine, and what a browser's Origin says of the page that asks.
//
// Pages of other sites can send requests here, and with DNS rebinding under this machine's very
// address, so a server without keys trusts names and not addresses. Pure functions, any thread.
#pragma once

#include <string_view>

namespace zerohop::api {

// The host of "localhost:8080", "127.0.0.1" or "[::1]:8080", without port and brackets.
std::string_view host_of(std::string_view authority);

// "localhost", or an address of 127.0.0.0/8 or ::1. Nobody else can give those to a name of theirs.
bool is_loopback_host(std::string_view host);

// The authority of an origin, "" of one that has none ("null").
std::string_view authority_of(std::string_view origin);

// Whether the page of this Origin came from the server that it asks now; ports that the scheme
// implies may be left out on either side.
bool is_same_origin(std::string_view origin, std::string_view authority);

}  // namespace zerohop::api
