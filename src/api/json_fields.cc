#include "api/json_fields.h"

#include <fmt/format.h>

#include "api/json_text.h"

namespace zerohop::api {
namespace {

using simdjson::dom::element_type;

std::string_view type_name(Json value) {
    switch (value.type()) {
        case element_type::ARRAY:
            return "an array";
        case element_type::OBJECT:
            return "an object";
        case element_type::INT64:
        case element_type::UINT64:
        case element_type::DOUBLE:
            return "a number";
        case element_type::STRING:
            return "a string";
        case element_type::BOOL:
            return "a boolean";
        case element_type::NULL_VALUE:
            return "null";
    }
    return "something else";
}

std::unexpected<Error> wrong_type(const Path& path, std::string_view wanted, Json value) {
    return bad_field(path, fmt::format("must be {}, not {}", wanted, type_name(value)));
}

// A key the client sent: shortened, so that no error echoes a megabyte.
std::string shown_key(std::string_view key) {
    std::string text = in_quotes(key);
    return text.substr(1, text.size() - 2);
}

}  // namespace

void Path::append_to(std::string& out) const {
    if (up_ == nullptr) return;
    up_->append_to(out);
    if (!out.empty()) out += '.';
    if (is_index_) {
        append_int(out, static_cast<std::int64_t>(index_));
    } else {
        out += shown_key(key_);
    }
}

std::string Path::text() const {
    std::string out;
    append_to(out);
    return out.empty() ? "body" : out;
}

std::unexpected<Error> bad_field(const Path& path, std::string_view message) {
    return fail(Code::kInvalidRequest, "api", path.text() + ": " + std::string(message));
}

Result<std::string_view> want_string(Json value, const Path& path) {
    std::string_view out;
    if (value.get_string().get(out) != simdjson::SUCCESS)
        return wrong_type(path, "a string", value);
    return out;
}

Result<bool> want_bool(Json value, const Path& path) {
    bool out = false;
    if (value.get_bool().get(out) != simdjson::SUCCESS) return wrong_type(path, "a boolean", value);
    return out;
}

Result<std::int64_t> want_int(Json value, const Path& path, std::int64_t min, std::int64_t max) {
    const element_type type = value.type();
    if (type == element_type::DOUBLE) return bad_field(path, "must be an integer, not a fraction");
    if (type != element_type::INT64 && type != element_type::UINT64)
        return wrong_type(path, "an integer", value);
    std::int64_t out = 0;
    if (value.get_int64().get(out) != simdjson::SUCCESS)  // above the signed range
        return bad_field(path, fmt::format("must be at most {}", max));
    if (out < min) return bad_field(path, fmt::format("must be at least {}, not {}", min, out));
    if (out > max) return bad_field(path, fmt::format("must be at most {}, not {}", max, out));
    return out;
}

Result<double> want_number(Json value, const Path& path, double min, double max) {
    double out = 0;
    if (value.get_double().get(out) != simdjson::SUCCESS)
        return wrong_type(path, "a number", value);
    if (!(out >= min && out <= max))
        return bad_field(path,
                         fmt::format("must be between {:g} and {:g}, not {:g}", min, max, out));
    return out;
}

Result<simdjson::dom::array> want_array(Json value, const Path& path) {
    simdjson::dom::array out;
    if (value.get_array().get(out) != simdjson::SUCCESS) return wrong_type(path, "an array", value);
    return out;
}

Result<simdjson::dom::object> want_object(Json value, const Path& path) {
    simdjson::dom::object out;
    if (value.get_object().get(out) != simdjson::SUCCESS)
        return wrong_type(path, "an object", value);
    return out;
}

Result<std::string_view> want_one_of(Json value, const Path& path,
                                     std::span<const std::string_view> allowed) {
    const Result<std::string_view> text = want_string(value, path);
    if (!text) return text;
    for (const std::string_view candidate : allowed)
        if (*text == candidate) return text;
    std::string list;
    for (const std::string_view candidate : allowed) {
        if (!list.empty()) list += ", ";
        list += in_quotes(candidate);
    }
    return bad_field(path, fmt::format("must be one of {}; got {}", list, in_quotes(*text)));
}

Status read_fields(simdjson::dom::object object, const Path& path,
                   std::span<const std::string_view> names, std::span<Field> out, Unknown unknown) {
    for (const auto member : object) {
        std::size_t i = 0;
        while (i < names.size() && names[i] != member.key) ++i;
        if (i == names.size() && unknown == Unknown::kIgnored) continue;
        if (i == names.size()) return bad_field(Path(path, member.key), "unknown field");
        if (out[i].has_value()) return bad_field(Path(path, member.key), "given twice");
        out[i] = member.value;
    }
    return {};
}

}  // namespace zerohop::api
