#include "api/origin.h"

#include <arpa/inet.h>

#include <cstring>
#include <string>

#include "base/ascii.h"

namespace zerohop::api {
namespace {

constexpr std::string_view kSchemeEnd = "://";

}  // namespace

std::string_view host_of(std::string_view authority) {
    if (authority.starts_with('[')) {
        const std::size_t end = authority.find(']');
        return end == std::string_view::npos ? authority : authority.substr(1, end - 1);
    }
    return authority.substr(0, authority.find(':'));
}

bool is_loopback_host(std::string_view host) {
    if (equal_ignoring_case(host, "localhost")) return true;
    if (host.size() >= INET6_ADDRSTRLEN) return false;
    const std::string text(host);
    in_addr v4{};
    if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
    in6_addr v6{};
    if (inet_pton(AF_INET6, text.c_str(), &v6) != 1) return false;
    if (IN6_IS_ADDR_V4MAPPED(&v6)) return v6.s6_addr[12] == 127;
    return std::memcmp(&v6, &in6addr_loopback, sizeof v6) == 0;
}

std::string_view authority_of(std::string_view origin) {
    const std::size_t at = origin.find(kSchemeEnd);
    return at == std::string_view::npos ? std::string_view()
                                        : origin.substr(at + kSchemeEnd.size());
}

bool is_same_origin(std::string_view origin, std::string_view authority) {
    std::string_view theirs = authority_of(origin);
    const std::string_view implied = origin.starts_with("https:") ? ":443" : ":80";
    for (std::string_view* a : {&theirs, &authority})
        if (a->ends_with(implied)) a->remove_suffix(implied.size());
    return !theirs.empty() && equal_ignoring_case(theirs, authority);
}

}  // namespace zerohop::api
