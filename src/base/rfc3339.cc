#include "base/rfc3339.h"

namespace zerohop {
namespace {

struct Civil {
    std::int64_t year;
    int month, day;
};

// Days since 1970-01-01 <-> proleptic Gregorian date; years counted from March so that the leap day
// is the last of its year.
std::int64_t days_from_civil(const Civil& c) {
    const std::int64_t y = c.month <= 2 ? c.year - 1 : c.year;
    const std::int64_t era = (y >= 0 ? y : y - 399) / 400;
    const std::int64_t year_of_era = y - era * 400;
    const int shifted_month = (c.month + 9) % 12;
    const std::int64_t day_of_year = (153 * shifted_month + 2) / 5 + c.day - 1;
    const std::int64_t day_of_era =
        year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468;
}

Civil civil_from_days(std::int64_t days) {
    days += 719468;
    const std::int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    const std::int64_t doe = days - era * 146097;
    const std::int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    const std::int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    const std::int64_t shifted = (5 * doy + 2) / 153;
    const int day = static_cast<int>(doy - (153 * shifted + 2) / 5 + 1);
    const int month = static_cast<int>(shifted < 10 ? shifted + 3 : shifted - 9);
    return {.year = yoe + era * 400 + (month <= 2 ? 1 : 0), .month = month, .day = day};
}

bool leap(std::int64_t year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

int days_in(std::int64_t year, int month) {
    constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return month == 2 && leap(year) ? 29 : kDays[month - 1];
}

void put_digits(char* out, std::int64_t value, int width) {
    for (int i = width - 1; i >= 0; --i) {
        out[i] = static_cast<char>('0' + value % 10);
        value /= 10;
    }
}

// Exactly `width` digits at text[at]; -1 when they are not.
int digits(std::string_view text, std::size_t at, std::size_t width) {
    if (at + width > text.size()) return -1;
    int value = 0;
    for (std::size_t i = at; i < at + width; ++i) {
        if (text[i] < '0' || text[i] > '9') return -1;
        value = value * 10 + (text[i] - '0');
    }
    return value;
}

// "Z", "+hh:mm" or "-hh:mm" as seconds east of UTC.
std::optional<int> offset_seconds(std::string_view zone) {
    if (zone == "Z" || zone == "z") return 0;
    if (zone.size() != 6 || (zone[0] != '+' && zone[0] != '-') || zone[3] != ':') return {};
    const int hours = digits(zone, 1, 2);
    const int minutes = digits(zone, 4, 2);
    if (hours < 0 || hours > 23 || minutes < 0 || minutes > 59) return {};
    return (zone[0] == '-' ? -1 : 1) * (hours * 3600 + minutes * 60);
}

}  // namespace

void format_rfc3339(WallNs t, char* out) {
    std::int64_t seconds = t / kNsPerSec;
    if (t % kNsPerSec < 0) --seconds;
    std::int64_t days = seconds / 86400;
    std::int64_t rest = seconds % 86400;
    if (rest < 0) {
        rest += 86400;
        --days;
    }
    const Civil c = civil_from_days(days);
    put_digits(out, c.year, 4);
    out[4] = '-';
    put_digits(out + 5, c.month, 2);
    out[7] = '-';
    put_digits(out + 8, c.day, 2);
    out[10] = 'T';
    put_digits(out + 11, rest / 3600, 2);
    out[13] = ':';
    put_digits(out + 14, rest / 60 % 60, 2);
    out[16] = ':';
    put_digits(out + 17, rest % 60, 2);
    out[19] = 'Z';
}

std::string format_rfc3339(WallNs t) {
    std::string out(kRfc3339Size, '0');
    format_rfc3339(t, out.data());
    return out;
}

std::optional<WallNs> parse_rfc3339(std::string_view text) {
    if (text.size() < 20 || text[4] != '-' || text[7] != '-' ||
        (text[10] != 'T' && text[10] != 't') || text[13] != ':' || text[16] != ':')
        return {};
    const int year = digits(text, 0, 4), month = digits(text, 5, 2), day = digits(text, 8, 2);
    const int hour = digits(text, 11, 2), minute = digits(text, 14, 2),
              second = digits(text, 17, 2);
    if (year < 1970 || year > 2261 || month < 1 || month > 12 || day < 1 ||
        day > days_in(year, month))
        return {};
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60) return {};
    std::size_t zone_at = 19;
    if (text[zone_at] == '.') {
        ++zone_at;
        const std::size_t first = zone_at;
        while (zone_at < text.size() && text[zone_at] >= '0' && text[zone_at] <= '9') ++zone_at;
        if (zone_at == first) return {};
    }
    const std::optional<int> east = offset_seconds(text.substr(zone_at));
    if (!east) return {};
    const std::int64_t days = days_from_civil({.year = year, .month = month, .day = day});
    return (days * 86400 + hour * 3600 + minute * 60 + second - *east) * kNsPerSec;
}

}  // namespace zerohop
