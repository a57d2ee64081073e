#include "api/body.h"

#include <algorithm>
#include <cstring>

#include "api/json_text.h"

namespace zerohop::api {
namespace {

constexpr std::size_t kFirstBytes = 4096;
constexpr std::size_t kExpectedAtOnce = 64 * 1024;  // a declared length up to this is believed

std::unexpected<Error> encoding_error(Code code, std::string_view error_code, std::string detail) {
    return std::unexpected(Error{.code = code,
                                 .detail = std::move(detail),
                                 .origin = "api",
                                 .error_code = std::string(error_code)});
}

}  // namespace

Error body_too_large(std::int64_t cap_bytes) {
    return Error{.code = Code::kTooLarge,
                 .detail = "body: larger than the limit of " + std::to_string(cap_bytes) + " bytes",
                 .origin = "api"};
}

Error bodies_full() {
    return Error{.code = Code::kOverloaded,
                 .detail = "the requests being received and waiting fill their memory; try again",
                 .origin = "api"};
}

Status Body::set_encoding(std::string_view content_encoding) {
    if (content_encoding.empty() || content_encoding == "identity") return {};
    if (content_encoding == "gzip" || content_encoding == "x-gzip") {
        gunzip_ = std::make_unique<Gunzip>();
        expected_ = -1;  // says nothing about the decoded size
        return {};
    }
    return encoding_error(Code::kInvalidRequest, "request_body_encoding_unsupported",
                          "content-encoding: " + in_quotes(content_encoding) +
                              " is not supported; send the body plain or with gzip");
}

Status Body::append(std::string_view bytes) {
    wire_bytes_ += bytes.size();
    if (wire_bytes_ > cap_) return std::unexpected(body_too_large(static_cast<std::int64_t>(cap_)));
    if (!gunzip_) return store(bytes);
    Status stored;
    const Gunzip::State state = gunzip_->feed(bytes, [&](std::string_view piece) {
        stored = store(piece);
        return stored.has_value();
    });
    if (state == Gunzip::State::kInvalid)
        return encoding_error(Code::kInvalidRequest, "request_body_encoding_invalid",
                              "body: not valid gzip data");
    if (state == Gunzip::State::kFull && stored.error().code == Code::kTooLarge)
        return encoding_error(
            Code::kTooLarge, "request_body_too_large_after_decoding",
            "body: larger than the limit of " + std::to_string(cap_) + " bytes after decoding");
    return stored;
}

Status Body::finish() {
    if (gunzip_ && !gunzip_->complete())
        return encoding_error(Code::kInvalidRequest, "request_body_encoding_invalid",
                              "body: the gzip data ends early");
    gunzip_.reset();
    return {};
}

Status Body::store(std::string_view bytes) {
    if (bytes.empty()) return {};
    if (bytes.size() > cap_ - size_)
        return std::unexpected(body_too_large(static_cast<std::int64_t>(cap_)));
    if (size_ + bytes.size() > capacity_)
        if (Status grown = grow(size_ + bytes.size()); !grown) return grown;
    std::memcpy(data_.get() + size_, bytes.data(), bytes.size());
    size_ += bytes.size();
    return {};
}

Status Body::grow(std::size_t needed) {
    std::size_t wanted = std::max({needed, capacity_ * 2, kFirstBytes});
    const auto expected = static_cast<std::size_t>(std::max<std::int64_t>(expected_, 0));
    if (needed <= expected)
        wanted = std::min(std::max(wanted, std::min(expected, kExpectedAtOnce)), expected);
    wanted = std::max(needed, std::min(wanted, cap_));
    if (!charge_.resize(wanted)) return std::unexpected(bodies_full());
    char* grown = static_cast<char*>(std::realloc(data_.get(), wanted + kPadding));
    if (grown == nullptr) {
        (void)charge_.resize(capacity_);
        return fail(Code::kOverloaded, "api", "out of memory for the request body; try again");
    }
    data_.release();
    data_.reset(grown);
    capacity_ = wanted;
    return {};
}

std::string_view Body::bytes() {
    if (!data_ && !grow(1).has_value()) return {};
    std::memset(data_.get() + size_, 0, kPadding);
    return {data_.get(), size_};
}

void Body::clear() {
    data_.reset();
    (void)charge_.resize(0);
    size_ = capacity_ = 0;
    gunzip_.reset();
}

}  // namespace zerohop::api
