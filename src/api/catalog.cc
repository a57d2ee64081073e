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
    : models_(newest_first(std::move(models))), names_(names_of(models_)) {}

std::shared_ptr<const ModelNames> Catalog::names_of(const std::vector<ServedModel>& models) {
    auto names = std::make_shared<ModelNames>();
    for (const ServedModel& model : models) names->add(model.id, model.aliases, model.fallback);
    return names;
}

void Catalog::set_names(const std::map<std::string, std::vector<std::string>>& aliases,
                        std::string_view fallback_id) {
    std::vector<ServedModel> named = models_;
    for (ServedModel& model : named) {
        const auto it = aliases.find(model.id);
        model.aliases = it == aliases.end() ? std::vector<std::string>() : it->second;
        model.fallback = model.id == fallback_id;
    }
    names_.store(names_of(named));
}

const ServedModel* Catalog::find(std::string_view name) const {
    const std::size_t place = readers_.get().get(names_)->find(name);
    return place == ModelNames::kNone ? nullptr : &models_[place];
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
