#include "net/server_state.h"

#include <arpa/inet.h>

namespace zerohop::net {

bool AddressCounts::add(const std::string& address, std::size_t most) {
    std::lock_guard lock(mutex_);
    std::size_t& count = counts_[address];
    if (count >= most) return false;
    ++count;
    return true;
}

void AddressCounts::remove(const std::string& address) {
    std::lock_guard lock(mutex_);
    const auto it = counts_.find(address);
    if (it != counts_.end() && --it->second == 0) counts_.erase(it);
}

std::string address_key(const std::string& address) {
    in6_addr v6{};
    if (inet_pton(AF_INET6, address.c_str(), &v6) != 1) return address;
    return {reinterpret_cast<const char*>(v6.s6_addr), 8};
}

}  // namespace zerohop::net
