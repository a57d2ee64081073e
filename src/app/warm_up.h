// The warm-ups of the configuration: prompts whose KV is there before the first request comes.
//
// Main thread, at start; blocks until each is computed. One that fails is logged with what to do
// and the server starts without it: it costs time later, nothing else.
#pragma once

#include "api/catalog.h"
#include "app/config.h"
#include "app/models.h"

namespace zerohop::app {

void warm_up_all(const Config& config, const api::Catalog& catalog, const Progress& progress);

}  // namespace zerohop::app
