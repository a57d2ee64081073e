// Reading small files of the operator's: configuration, keys, certificates. Opening never blocks,
// as it does with a pipe that nobody writes to: what is no regular file is an error.
//
// Threads: any; no state. Errors: kNotFound where there is none, else kInvalidRequest; the detail
// begins with the path.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace zerohop {

// `origin` is that of the Error: the caller's module, a literal.
Result<std::string> read_file(const std::string& path, std::string_view origin);

// The same check, for a file that a library opens by its name.
Status check_file(const std::string& path, std::string_view origin);

}  // namespace zerohop
