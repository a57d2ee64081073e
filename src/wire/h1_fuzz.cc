// Bytes into a whole HTTP/1 session with echo exchanges behind it. The first byte chooses how the
// bytes are cut; whatever comes, memory stays bounded and every exchange ends.
#include <cstdint>

#include "base/check.h"
#include "wire/testing/echo.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using zerohop::wire::testing::Driver;
    if (size == 0) return 0;
    Driver d(false);
    const std::size_t step = data[0] % 2 == 0 ? size : 1 + data[0] / 8;
    const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
    std::size_t fed = 0;
    for (std::size_t at = 0; at < bytes.size() && d.session->wants_read(); at += step) {
        d.stop_after = d.written + 256 * 1024;  // /flood never ends by itself
        d.blocked = false;
        d.feed(bytes.substr(at, step));
        fed += step;
        ZH_CHECK(d.session->buffered() < 512 * 1024 + fed + 2 * d.written);
        ZH_CHECK(d.session->exchanges() <= 1);
        if (data[0] % 4 >= 2) d.pass_ms(500);
    }
    if (data[0] % 3 == 0) d.eof();
    d.session->on_disconnect();
    ZH_CHECK(d.echo.live == 0);
    ZH_CHECK(d.exchanges == 0);
    ZH_CHECK(d.echo.heads().size() >= static_cast<std::size_t>(d.echo.completed));
    return 0;
}
