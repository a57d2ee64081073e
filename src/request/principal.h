// Principal: who asks. Made by `auth` from the request head; a value, immutable afterwards.
#pragma once

#include <functional>
#include <map>
#include <string>

namespace zerohop {

struct Principal {
    std::string workspace = "default";  // unit of isolation and quota; never from the client
    std::string key_id;                 // "" when no keys are configured (loopback only)
    bool admin = false;                 // may read the topology and share warm-ups
    // Not empty: the workspaces that the configuration lets share caches (cache.share), this one
    // among them. Never the name of a workspace.
    std::string cache_group;

    const std::string& cache_owner() const { return cache_group.empty() ? workspace : cache_group; }
};

// Principal::cache_group by workspace; those that share with nobody are not in it.
using CacheGroups = std::map<std::string, std::string, std::less<>>;

inline void join_cache_group(Principal& principal, const CacheGroups& groups) {
    const auto group = groups.find(principal.workspace);
    if (group != groups.end()) principal.cache_group = group->second;
}

}  // namespace zerohop
