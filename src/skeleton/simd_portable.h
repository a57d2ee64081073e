// The portable vector policy: 64 bytes at a time in plain C++. Gives the same masks as simd_avx2.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "skeleton/languages.h"

namespace zerohop::skeleton {

struct Portable {
    struct Bytes {
        unsigned char b[64];
    };
    static Bytes load(const char* p) {
        Bytes v;
        std::memcpy(v.b, p, 64);
        return v;
    }
    static std::uint64_t in(const Bytes& v, const CharSet& set) {
        std::uint64_t mask = 0;
        for (unsigned i = 0; i < 64; ++i) {
            const unsigned char c = v.b[i];
            const std::uint64_t hit = c < 128 ? (set.lo[c & 15] >> (c >> 4)) & 1U : 0U;
            mask |= hit << i;
        }
        return mask;
    }
    static std::uint64_t high(const Bytes& v) {
        std::uint64_t mask = 0;
        for (unsigned i = 0; i < 64; ++i) mask |= static_cast<std::uint64_t>(v.b[i] >> 7) << i;
        return mask;
    }
    static std::uint64_t equal(const Bytes& v, char c) {
        const auto want = static_cast<unsigned char>(c);
        std::uint64_t mask = 0;
        for (unsigned i = 0; i < 64; ++i) mask |= static_cast<std::uint64_t>(v.b[i] == want) << i;
        return mask;
    }

    // UTF-8 over consecutive blocks, RFC 3629 §4: which bytes may follow.
    class Utf8 {
      public:
        void reset() { *this = Utf8(); }
        void ascii() { bad_ = bad_ || need_ != 0; }
        void block(const Bytes& v) {
            for (const unsigned char c : v.b) step(c);
        }
        bool bad() const { return bad_; }

      private:
        void step(unsigned char c) {
            if (need_ > 0) {
                if (c < low_ || c > high_) {
                    bad_ = true;
                    need_ = 0;
                } else {
                    --need_;
                }
                low_ = 0x80;
                high_ = 0xBF;
                return;
            }
            if (c < 0x80) return;
            if (c < 0xC2 || c > 0xF4) {
                bad_ = true;
                return;
            }
            need_ = c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3;
            if (c == 0xE0) low_ = 0xA0;
            if (c == 0xED) high_ = 0x9F;
            if (c == 0xF0) low_ = 0x90;
            if (c == 0xF4) high_ = 0x8F;
        }
        unsigned need_ = 0;
        unsigned char low_ = 0x80;
        unsigned char high_ = 0xBF;
        bool bad_ = false;
    };
};

}  // namespace zerohop::skeleton
