// Any sequence of operations leaves the prefix tree in agreement with a plain model of it.
#include <cstddef>
#include <cstdint>

#include "kv/testing/prefix_tree_model.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace zerohop::kv;
    if (size > 600) size = 600;  // the model is quadratic
    testing::TreeModel({data, size}, {.capacity_tokens = 300, .pin_cap_tokens = 80}).run();
    return 0;
}
