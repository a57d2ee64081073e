#include "api/catalog.h"

#include <algorithm>

#include "api/json_text.h"
#include "base/check.h"

namespace zerohop::api {

namespace {

std::vector<ServedModel> newest_first(std::vector<ServedModel> models) {
    for (const ServedModel& model : models) ZH_CHECK(model.engine != nullptr);
    std::ranges::sort(models, [](const ServedModel& a, const ServedModel& b) {
        const WallNs x = a.engine->info().created_ns;
        const WallNs y = b.engine->info().created_ns;
        return x != y ? x > y : a.id < b.id;
    });
    return models;
}

}  // namespace

Catalog::Catalog(std::vector<ServedModel> models)
    : models_(newest_first(std::move(models))), by_name_(names_of(models_)) {}

std::shared_ptr<const Catalog::Names> Catalog::names_of(const std::vector<ServedModel>& models) {
    auto names = std::make_shared<Names>();
    for (std::size_t i = 0; i < models.size(); ++i) names->emplace(models[i].id, i);
    for (std::size_t i = 0; i < models.size(); ++i)
        for (const std::string& alias : models[i].aliases) names->emplace(alias, i);
    return names;
}

void Catalog::set_aliases(const std::map<std::string, std::vector<std::string>>& by_id) {
    std::vector<ServedModel> named = models_;
    for (ServedModel& model : named) {
        const auto it = by_id.find(model.id);
        model.aliases = it == by_id.end() ? std::vector<std::string>() : it->second;
    }
    by_name_.store(names_of(named));
}

const ServedModel* Catalog::find(std::string_view name) const {
    const Names& names = *readers_.get().get(by_name_);
    const auto it = names.find(name);
    return it == names.end() ? nullptr : &models_[it->second];
}

std::string Catalog::names(const std::function<bool(std::string_view)>& shown) const {
    constexpr std::size_t kShown = 8;
    std::string out;
    std::size_t count = 0;
    for (const ServedModel& model : models_) {
        if (shown && !shown(model.id)) continue;
        if (++count > kShown) return out + ", …";
        out += (out.empty() ? "" : ", ") + in_quotes(model.id);
    }
    return out;
}

std::int32_t max_output_limit(const ServedModel& model) {
    if (model.max_output_tokens > 0) return model.max_output_tokens;
    return std::max(model.engine->info().context_tokens, Catalog::kDefaultMaxOutput);
}

}  // namespace zerohop::api
