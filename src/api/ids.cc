#include "api/ids.h"

#include <sys/random.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/check.h"

namespace zerohop::api {
namespace {

// One system call per 256 bytes, about five requests' worth.
class RandomBytes {
  public:
    std::uint8_t next() {
        if (used_ == bytes_.size()) refill();
        return bytes_[used_++];
    }

  private:
    void refill() {
        std::size_t have = 0;
        while (have < bytes_.size()) {
            const ssize_t n = getrandom(bytes_.data() + have, bytes_.size() - have, 0);
            ZH_CHECK(n > 0);
            have += static_cast<std::size_t>(n);
        }
        used_ = 0;
    }

    std::array<std::uint8_t, 256> bytes_{};
    std::size_t used_ = 256;
};

RandomBytes& random_bytes() {
    thread_local RandomBytes bytes;
    return bytes;
}

// Two lower-case hex digits per byte, never all zero.
std::string hex_id(int bytes) {
    constexpr std::string_view kHex = "0123456789abcdef";
    std::string id;
    bool zero = true;
    do {
        id.clear();
        for (int i = 0; i < bytes; ++i) {
            const std::uint8_t byte = random_bytes().next();
            zero = zero && byte == 0;
            id += kHex[byte >> 4];
            id += kHex[byte & 15];
        }
    } while (zero);
    return id;
}

}  // namespace

std::string new_id(std::string_view prefix) {
    constexpr std::string_view kDigits =
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    constexpr int kLength = 24;
    std::string id(prefix);
    id.reserve(prefix.size() + kLength);
    for (int i = 0; i < kLength;) {
        const std::uint8_t byte = random_bytes().next();
        if (byte >= 248) continue;  // 248 = 4 · 62: every digit equally likely
        id += kDigits[byte % 62];
        ++i;
    }
    return id;
}

std::string new_trace_id() { return hex_id(16); }

std::string new_span_id() { return hex_id(8); }

}  // namespace zerohop::api
