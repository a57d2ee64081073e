// Reading typed fields out of a simdjson DOM with errors that name the field by path
// ("messages.0.content.1.text: must be a string, not a number").
//
// Internal to api's parsers (it shows simdjson). Threads: any; everything lives on the caller's
// stack, views stay valid as long as the document. Nothing throws: simdjson's error codes only.
#pragma once

#include <simdjson.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace zerohop::api {

using Json = simdjson::dom::element;

// Where we are, as a list from the inside out; rendered only when there is an error to report.
class Path {
  public:
    Path() = default;  // the body itself
    Path(const Path& up, std::string_view key) : up_(&up), key_(key) {}
    Path(const Path& up, std::size_t index) : up_(&up), index_(index), is_index_(true) {}

    std::string text() const;  // "messages.0.content"; "body" for the root

  private:
    void append_to(std::string& out) const;

    const Path* up_ = nullptr;
    std::string_view key_;
    std::size_t index_ = 0;
    bool is_index_ = false;
};

// "PATH: MESSAGE" as kInvalidRequest.
std::unexpected<Error> bad_field(const Path& path, std::string_view message);

Result<std::string_view> want_string(Json value, const Path& path);
Result<bool> want_bool(Json value, const Path& path);
Result<std::int64_t> want_int(Json value, const Path& path, std::int64_t min, std::int64_t max);
Result<double> want_number(Json value, const Path& path, double min, double max);
Result<simdjson::dom::array> want_array(Json value, const Path& path);
Result<simdjson::dom::object> want_object(Json value, const Path& path);

// One of `allowed`, else an error that lists them.
Result<std::string_view> want_one_of(Json value, const Path& path,
                                     std::span<const std::string_view> allowed);

using Field = std::optional<Json>;

enum class Unknown : std::uint8_t { kRefused, kIgnored };

// Distributes an object's members: out[i] gets the one called names[i]. Repeated names are errors
// that name them, and so are unknown ones, unless the object is only a hint. `null` counts as
// absent for the helper below, not here.
Status read_fields(simdjson::dom::object object, const Path& path,
                   std::span<const std::string_view> names, std::span<Field> out,
                   Unknown unknown = Unknown::kRefused);

inline bool present(const Field& field) { return field.has_value() && !field->is_null(); }

}  // namespace zerohop::api
