// GET and DELETE /v1/cache: what the models keep of earlier prompts, and making them forget it.
//
// Everybody sees and forgets what is their workspace's, or their group's where workspaces share
// caches, of the models that they may use; an admin sees all, and may forget any one entry. An id
// is "MODEL-ENTRY", both counted by this process: it means nothing after a restart. Threads: any;
// pure functions over the catalog and its engines' snapshots (at most a second old). Fail with
// kNotFound for an id that is none, or none of theirs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "api/catalog.h"
#include "api/head_policy.h"
#include "base/clock.h"
#include "base/error.h"
#include "request/principal.h"

namespace zerohop::api {

inline constexpr std::size_t kMaxListedEntries = 1'000;  // the totals are of all

// now and wall are the same moment.
std::string list_cached(const Catalog& catalog, const Principal& principal, const Admission& who,
                        MonoNs now, WallNs wall);

// raw_id: one path segment, or "" for all that is the workspace's (or group's).
Result<std::string> delete_cached(const Catalog& catalog, const Principal& principal,
                                  Admission& who, std::string_view raw_id);

}  // namespace zerohop::api
