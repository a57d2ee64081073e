// What of a configuration goes into the topology: lanes, regions, limits of workspaces.
//
// Pure functions, any thread. Errors: kInvalidRequest, naming the entry.
#pragma once

#include <memory>
#include <vector>

#include "admit/topology.h"
#include "app/config.h"
#include "base/error.h"

namespace zerohop::app {

// The lanes of a configuration, or those out of the box.
std::vector<admit::Lane> lanes_of(const Config& config);
// The slots that each asks for, by lane.
std::vector<std::uint32_t> reservations_of(const std::vector<admit::Lane>& lanes);

// `models` and `lanes` as they are served, which after a reload need not be those of the file.
Result<std::shared_ptr<const admit::Topology>> make_topology(
    const Config& config, const std::vector<admit::Model>& models,
    const std::vector<admit::Lane>& lanes);

// What the file says of the names of these models, which are served: aliases, and whose the unknown
// names are.
void set_names(const Config& config, std::vector<admit::Model>& models);

// Whether a server could start with it, without loading anything.
Status check_topology(const Config& config);

}  // namespace zerohop::app
