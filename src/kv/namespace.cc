#include "kv/namespace.h"

#include <xxhash.h>

#include <string>

namespace zerohop::kv {
namespace {

void add_part(std::string& to, char kind, std::string_view part) {
    to.push_back(kind);
    for (std::size_t size = part.size(), i = 0; i < 8; ++i, size >>= 8)
        to.push_back(static_cast<char>(size & 0xff));
    to.append(part);
}

Namespace hash_parts(const std::string& bytes, std::uint64_t owner) {
    const XXH128_hash_t h = XXH3_128bits(bytes.data(), bytes.size());
    return {.lo = h.low64, .hi = h.high64, .owner = owner};
}

}  // namespace

Namespace derive_namespace(std::string_view workspace, std::string_view model,
                           std::string_view user) {
    std::string bytes;
    add_part(bytes, 'w', workspace);
    const std::uint64_t owner = XXH3_64bits(bytes.data(), bytes.size());
    add_part(bytes, 'm', model);
    if (!user.empty()) add_part(bytes, 'u', user);
    return hash_parts(bytes, owner);
}

Namespace shared_namespace(std::string_view name, std::string_view model) {
    std::string bytes;
    add_part(bytes, 's', name);
    const std::uint64_t owner = XXH3_64bits(bytes.data(), bytes.size());
    add_part(bytes, 'm', model);
    return hash_parts(bytes, owner);
}

}  // namespace zerohop::kv
