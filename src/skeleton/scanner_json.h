// Part of class Scanner (scanner.h): one JSON value and its shape. docs/formats/skeleton.md §5.
#ifndef ZH_SKELETON_SCANNER_BODY
#pragma once
#else

static constexpr std::size_t kJsonDepth = 256;      // deeper is no JSON
static constexpr std::size_t kShapeDepth = 32;      // deeper containers are "~"
static constexpr std::uint32_t kShapeMembers = 32;  // members shown

struct JsonLevel {
    std::uint32_t count;
    bool object;
    bool hidden;  // nothing of this container is shown, not even its brackets
};

void shape(char c) { a_.shapes.push(c); }
void shape_count(std::uint32_t n) {
    char digits[12];
    std::size_t size = 0;
    for (std::uint32_t v = step(n); size == 0 || v > 0; v /= 10)
        digits[size++] = static_cast<char>('0' + v % 10);
    while (size > 0) shape(digits[--size]);
}

// Reads the value at `at` into a Json leaf. On failure nothing is left behind but json_floor_.
bool json_node(std::size_t at, std::size_t limit, std::size_t& end) {
    const std::size_t start = a_.shapes.size();
    std::size_t p = at;
    if (!json_value(p, limit)) {
        a_.shapes.resize_down(start);
        json_floor_ = std::max(json_floor_, p);
        return false;
    }
    end = p;
    Node& n = leaf(Kind::kJson, at, end);
    n.name = static_cast<std::uint32_t>(start);
    n.name_size = static_cast<std::uint32_t>(a_.shapes.size() - start);
    n.count = 1;
    return true;
}

// A string from its opening quote; past its closing one. No line ends inside.
bool json_string(std::size_t& p, std::size_t limit) const {
    static constexpr CharSet kStop = char_set("\"\\\n\r");
    std::size_t e = p + 1;
    for (;;) {
        e = find(e, limit, kStop);
        if (e >= limit) break;
        if (t_[e] == '"') {
            p = e + 1;
            return true;
        }
        if (t_[e] != '\\') break;
        e += 2;
    }
    p = std::min(e, limit);
    return false;
}
bool json_literal(std::size_t& p, std::size_t limit, std::string_view word) const {
    if (std::string_view(t_ + p, std::min(word.size(), limit - p)) != word) return false;
    p += word.size();
    return true;
}
// Strings, numbers and literals; the letter of their type.
char json_scalar(std::size_t& p, std::size_t limit) const {
    const char c = t_[p];
    if (c == '"') return json_string(p, limit) ? 's' : '\0';
    if (c == 't') return json_literal(p, limit, "true") ? 'b' : '\0';
    if (c == 'f') return json_literal(p, limit, "false") ? 'b' : '\0';
    if (c == 'n') return json_literal(p, limit, "null") ? 'z' : '\0';
    if (c != '-' && (c < '0' || c > '9')) return '\0';
    ++p;
    while (p < limit && (cls(t_[p]) & kNumber) != 0) ++p;
    return 'n';
}

// On failure p is how far it looked.
bool json_value(std::size_t& p, std::size_t limit) {
    std::array<JsonLevel, kJsonDepth> levels;
    std::size_t depth = 0;
    std::size_t muted = 0;  // 0: shown; else the level (1-based) whose rest is not shown
    for (;;) {
        // A value begins here.
        p = skip_space(p, limit);
        if (p >= limit) return false;
        const char c = t_[p];
        if (c == '{' || c == '[') {
            if (depth == kJsonDepth) return false;
            JsonLevel& level = levels[depth++];
            level = {0, c == '{', false};
            if (muted == 0) {
                if (depth > kShapeDepth) {
                    level.hidden = true;
                    shape('~');
                    muted = depth;
                } else {
                    shape(c);
                }
            }
            p = skip_space(p + 1, limit);
            if (p >= limit) return false;
            if (t_[p] != (level.object ? '}' : ']')) {
                if (level.object && !json_key(p, limit, level, muted, depth)) return false;
                if (!level.object) level.count = 1;
                continue;
            }
            // Empty: closed below.
        } else {
            const char type = json_scalar(p, limit);
            if (type == '\0') return false;
            if (muted == 0) shape(type);
        }
        // A value has ended: close what ends here, or go on to the next member.
        for (;;) {
            if (depth == 0) return true;
            JsonLevel& level = levels[depth - 1];
            p = skip_space(p, limit);
            if (p >= limit) return false;
            if (t_[p] == ',') {
                ++p;
                if (level.object) {
                    p = skip_space(p, limit);
                    if (p >= limit || !json_key(p, limit, level, muted, depth)) return false;
                } else {
                    ++level.count;
                    if (muted == 0) muted = depth;
                }
                break;
            }
            if (t_[p] != (level.object ? '}' : ']')) return false;
            ++p;
            if (muted == depth) muted = 0;
            if (muted == 0 && !level.hidden) {
                if (!level.object && level.count > 0) {
                    shape('*');
                    shape_count(level.count);
                } else if (level.object && level.count > kShapeMembers) {
                    shape('+');
                    shape_count(level.count);
                }
                shape(level.object ? '}' : ']');
            }
            --depth;
        }
    }
}
// Most keys are short: 32 bytes at once, of which `size` count.
void shape_key(std::size_t begin, std::size_t size) {
    if (size > 32 || n_ - begin < 32) {
        a_.shapes.append(t_ + begin, size);
        return;
    }
    std::memcpy(a_.shapes.reserve_more(32), t_ + begin, 32);
    a_.shapes.commit(size);
}
bool json_key(std::size_t& p, std::size_t limit, JsonLevel& level, std::size_t& muted,
              std::size_t depth) {
    if (t_[p] != '"') return false;
    const std::size_t begin = p;
    if (!json_string(p, limit)) return false;
    if (++level.count > kShapeMembers && muted == 0) muted = depth;
    if (muted == 0) {
        if (level.count > 1) shape(',');
        shape_key(begin, p - begin);
        shape(':');
    }
    p = skip_space(p, limit);
    if (p >= limit || t_[p] != ':') return false;
    ++p;
    return true;
}

#endif
