#include "api/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <array>

namespace zerohop::api {
namespace {

constexpr int kGzipWindow = 15 + 16;  // zlib: 16 asks for the gzip wrapper

std::string_view trim(std::string_view text) {
    const auto first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

bool equals_ignoring_case(std::string_view a, std::string_view lower) {
    return std::ranges::equal(a, lower, [](char x, char y) {
        return (x >= 'A' && x <= 'Z' ? static_cast<char>(x + 32) : x) == y;
    });
}

// "q=0", "q=0.0", … : not wanted.
bool weight_is_zero(std::string_view parameter) {
    parameter = trim(parameter);
    if (parameter.size() < 3 || (parameter[0] != 'q' && parameter[0] != 'Q') || parameter[1] != '=')
        return false;
    return parameter.substr(2).find_first_not_of("0.") == std::string_view::npos;
}

}  // namespace

bool accepts_gzip(std::string_view accept_encoding) {
    while (!accept_encoding.empty()) {
        const std::size_t end = std::min(accept_encoding.find(','), accept_encoding.size());
        const std::string_view item = accept_encoding.substr(0, end);
        accept_encoding.remove_prefix(std::min(end + 1, accept_encoding.size()));
        const std::size_t semicolon = item.find(';');
        if (!equals_ignoring_case(trim(item.substr(0, semicolon)), "gzip")) continue;
        return semicolon == std::string_view::npos || !weight_is_zero(item.substr(semicolon + 1));
    }
    return false;
}

std::optional<std::string> gzip_compress(std::string_view body) {
    z_stream z{};
    if (deflateInit2(&z, Z_BEST_SPEED, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return std::nullopt;
    std::string out(deflateBound(&z, static_cast<uLong>(body.size())), '\0');
    // zlib's interface lacks the const; it does not write to its input.
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(body.data()));
    z.avail_in = static_cast<uInt>(body.size());
    z.next_out = reinterpret_cast<Bytef*>(out.data());
    z.avail_out = static_cast<uInt>(out.size());
    const int rc = deflate(&z, Z_FINISH);
    out.resize(z.total_out);
    deflateEnd(&z);
    if (rc != Z_STREAM_END) return std::nullopt;
    return out;
}

struct Gunzip::Impl {
    z_stream z{};
    bool usable = false;
    bool ended = false;  // at the end of a member
    std::array<char, 16384> out;
};

Gunzip::Gunzip() : impl_(std::make_unique<Impl>()) {
    impl_->usable = inflateInit2(&impl_->z, kGzipWindow) == Z_OK;
}

Gunzip::~Gunzip() {
    if (impl_->usable) inflateEnd(&impl_->z);
}

bool Gunzip::complete() const { return impl_->ended; }

void Gunzip::set_input(std::string_view in) {
    impl_->z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    impl_->z.avail_in = static_cast<uInt>(in.size());
}

std::optional<std::string_view> Gunzip::step() {
    if (!impl_->usable) return std::nullopt;
    z_stream& z = impl_->z;
    for (;;) {
        if (impl_->ended) {
            if (z.avail_in == 0) return std::string_view{};
            if (inflateReset(&z) != Z_OK) return std::nullopt;  // another member follows
            impl_->ended = false;
        }
        z.next_out = reinterpret_cast<Bytef*>(impl_->out.data());
        z.avail_out = static_cast<uInt>(impl_->out.size());
        const int rc = inflate(&z, Z_NO_FLUSH);
        if (rc == Z_STREAM_END) {
            impl_->ended = true;
        } else if (rc == Z_BUF_ERROR) {
            return std::string_view{};  // no progress possible: wants more input
        } else if (rc != Z_OK) {
            return std::nullopt;
        }
        const std::size_t n = impl_->out.size() - z.avail_out;
        if (n > 0) return std::string_view(impl_->out.data(), n);
        if (z.avail_in == 0) return std::string_view{};
    }
}

}  // namespace zerohop::api
