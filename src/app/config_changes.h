// config_changes: what of a configuration read again a running server cannot take up.
//
// From the table of keys (config_fields.cc), where Field::reloads marks those it can: a new key
// needs a restart until it is marked, and is named here without further work. Pure, any thread.
#pragma once

#include <string>
#include <vector>

#include "app/config.h"

namespace zerohop::app {

// Names for people, in the order of the table: `limits.body_bytes`, `model.path of "qwen"`, … Both
// as finish_config() left them. Empty: a reload takes up everything.
std::vector<std::string> needs_restart(Config running, Config fresh);

}  // namespace zerohop::app
