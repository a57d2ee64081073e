// Catalog: the models this process serves, by public id and alias, in the order lists show them.
//
// Any thread may read it: models never change, and the table of names is replaced whole. Does not
// own the engines: they outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/per_thread.h"
#include "base/published.h"
#include "request/engine_port.h"
#include "request/model_names.h"

namespace zerohop::api {

struct ServedModel {
    std::string id;  // public id; what answers name
    EnginePort* engine = nullptr;
    std::vector<std::string> aliases;  // at first; see Catalog::set_names
    bool fallback = false;             // likewise: has the names that nobody has
    // Largest max_tokens a request may ask for. 0: the context size, but at least
    // kDefaultMaxOutput, because agents send 32000 whatever the model; the context then ends the
    // output.
    std::int32_t max_output_tokens = 0;
};

class Catalog {
  public:
    static constexpr std::int32_t kDefaultMaxOutput = 131072;

    // Newest first, then by id (wire-contract §1.4).
    explicit Catalog(std::vector<ServedModel> models);

    const std::vector<ServedModel>& models() const { return models_; }

    // From now on these are the aliases, by model id (of a model that is not named, none), and the
    // fallback ("": none). One thread at a time, while others read.
    void set_names(const std::map<std::string, std::vector<std::string>>& aliases,
                   std::string_view fallback_id);

    // By model_names.h; nullptr when nothing is served under that name. Valid as long as the
    // catalog.
    const ServedModel* find(std::string_view name) const;

    // "'a', 'b'" for messages; the first eight of those that are to be shown (empty: all).
    std::string names(const std::function<bool(std::string_view id)>& shown = {}) const;

  private:
    static std::shared_ptr<const ModelNames> names_of(const std::vector<ServedModel>& models);

    std::vector<ServedModel> models_;
    Published<ModelNames> names_;
    mutable PerThread<Published<ModelNames>::Reader> readers_;
};

// The cap a request's max_tokens is held to.
std::int32_t max_output_limit(const ServedModel& model);

}  // namespace zerohop::api
