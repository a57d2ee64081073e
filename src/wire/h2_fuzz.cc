// Bytes into a whole HTTP/2 session with echo exchanges behind it. First byte: how they are cut,
// and whether preface and SETTINGS are put before them (else the input brings its own).
#include <cstdint>

#include "base/check.h"
#include "wire/testing/echo.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    namespace wire = zerohop::wire;
    if (size == 0) return 0;
    wire::testing::Driver d(true);
    const auto mode = data[0];
    const std::size_t step = mode % 2 == 0 ? size : 1 + mode / 8;
    if (mode % 4 < 2) d.feed(std::string(wire::kH2Preface) + std::string("\0\0\0\4\0\0\0\0\0", 9));
    const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
    for (std::size_t at = 0; at < bytes.size(); at += step) {
        d.stop_after = d.written + 256 * 1024;
        d.blocked = false;
        d.feed(bytes.substr(at, step));
        ZH_CHECK(d.session->exchanges() <= d.limits.h2_streams);
        ZH_CHECK(d.session->buffered() < 512 * 1024 + d.limits.h2_streams * 96 * 1024 + 2 * size);
    }
    if (mode % 3 == 0) {
        d.session->drain();
        d.pass_ms(600);
    }
    d.pass_ms(d.limits.body_idle_ms + 1);
    d.pass_ms(2 * d.limits.write_stall_ms + 1);
    d.session->on_disconnect();
    ZH_CHECK(d.echo.live == 0);
    ZH_CHECK(d.exchanges == 0);
    return 0;
}
