// H1Parser: one HTTP/1.x request, on Boost.Beast's parser, with what Beast forgives taken back.
//
// Strict where two parsers could disagree (request smuggling, RFC 9112 §11.2): bare CR or LF, NUL,
// obs-fold, white space before a field's colon, any transfer-encoding but "chunked",
// transfer-encoding in HTTP/1.0 or beside content-length, more than one content-length. Owning
// thread: the session's. Nothing throws; errors are WireErrors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "wire/http.h"
#include "wire/limits.h"
#include "wire/wire_error.h"

namespace zerohop::wire {

// Finds the end of a head in `bytes`, looking at each byte once over all calls (`scanned` keeps the
// place; start at 0). Returns the head's size with its final empty line, 0 when more is needed.
struct HeadScan {
    std::size_t scanned = 0;
    std::optional<WireError> error = std::nullopt;
};
std::size_t find_head_end(std::string_view bytes, HeadScan& scan, const Limits& limits);

class H1Parser {
  public:
    H1Parser();
    ~H1Parser();

    // `bytes` is a whole head as find_head_end() delimits it. Fills method, target, authority,
    // headers, content_length, has_body, expects_continue.
    std::optional<WireError> parse_head(std::string_view bytes, const Limits& limits,
                                        RequestHead& head);
    bool http10() const;
    bool wants_close() const;  // `connection: close`, or HTTP/1.0
    bool done() const;         // the request is complete
    // Body bytes still to come; nullopt when chunked.
    std::optional<std::uint64_t> length_left() const;

    using Sink = std::function<void(std::string_view)>;
    struct Fed {
        std::size_t consumed = 0;  // the rest has to be given again, with more behind it
        std::optional<WireError> error = std::nullopt;
    };
    // Body bytes, while !done().
    Fed feed(std::string_view bytes, const Sink& sink);

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
    bool gave_back_ = false;  // the last feed() left bytes of a chunk's header
};

}  // namespace zerohop::wire
