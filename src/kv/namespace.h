// Namespace: whose cache entries these are. Every key of kv and draft starts with one, so a look-up
// of one workspace can never reach, count or time an entry of another.
//
// Derived on the server from what `auth` found out, never from anything the client may choose
// freely. With cache.isolate = "user" the user joins the id; `owner` stays the workspace's, because
// pins are capped per workspace. Workspaces that the configuration lets share (cache.share) have
// one namespace and one owner together (shared_namespace).
//
// Threads: values. Nothing fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace zerohop::kv {

using Token = std::int32_t;

struct Namespace {
    std::uint64_t lo = 0, hi = 0;  // 128 bits: collisions do not happen by accident
    std::uint64_t owner = 0;       // the workspace or group that pays for pins
    friend bool operator==(const Namespace& a, const Namespace& b) {
        return a.lo == b.lo && a.hi == b.hi;
    }
};

struct NamespaceHash {
    std::size_t operator()(const Namespace& n) const noexcept { return n.lo ^ (n.hi << 1); }
};

// user is empty unless caches are isolated per user. The parts are length-prefixed before hashing:
// ("ab", "c") and ("a", "bc") differ.
Namespace derive_namespace(std::string_view workspace, std::string_view model,
                           std::string_view user = {});
Namespace shared_namespace(std::string_view name, std::string_view model);

}  // namespace zerohop::kv
