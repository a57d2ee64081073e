#include "app/version.h"

#include <fmt/format.h>

#include "engine/llama_engine.h"

namespace zerohop::app {

std::string version_number() { return ZEROHOP_VERSION; }

std::string version_text() {
    return fmt::format("zerohop {}\nllama.cpp {}", version_number(), engine::llama_version_text());
}

}  // namespace zerohop::app
