// Bytes as a configuration file: accepted or refused with words, never a crash.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "app/config.h"
#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    auto config = zerohop::app::parse_config(text, "fuzz");
    if (config) {
        (void)zerohop::app::finish_config(*config);
    } else {
        ZH_CHECK(!config.error().detail.empty());
    }
    return 0;
}
