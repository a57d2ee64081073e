// What this binary is made of, for --version, /readyz's log line and bug reports. Any thread.
#pragma once

#include <string>

namespace zerohop::app {

// "zerohop 0.1.0\nllama.cpp 0.4.0 (revision …)\ncpu: AVX2 AVX512 …"
std::string version_text();
std::string version_number();

}  // namespace zerohop::app
