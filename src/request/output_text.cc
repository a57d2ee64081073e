// Invariant between calls: sent text + held_ + partial_ is everything taken so far (repaired), and
// held_ has exactly nodes_[state_].depth bytes from held_begin_ on.
#include "request/output_text.h"

#include "base/check.h"

namespace zerohop {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Bytes of the code point that `lead` begins; 0 when no code point begins so (Unicode table 3-7).
std::uint32_t sequence_length(unsigned char lead) {
    if (lead < 0x80) return 1;
    if (lead < 0xC2) return 0;
    if (lead < 0xE0) return 2;
    if (lead < 0xF0) return 3;
    return lead < 0xF5 ? 4 : 0;
}

// Whether `byte` may stand second after `lead`: rules out overlong forms, surrogates, > U+10FFFF.
bool second_fits(unsigned char lead, unsigned char byte) {
    if ((byte & 0xC0) != 0x80) return false;
    if (lead == 0xE0) return byte >= 0xA0;
    if (lead == 0xED) return byte < 0xA0;
    if (lead == 0xF0) return byte >= 0x90;
    if (lead == 0xF4) return byte < 0x90;
    return true;
}

}  // namespace

OutputText::OutputText(const std::vector<std::string>& stop_sequences, StopRule rule)
    : rule_(rule) {
    if (!stop_sequences.empty()) build(stop_sequences);
}

// 0: none.
std::uint16_t OutputText::child(std::uint16_t node, char byte) const {
    std::uint16_t next = nodes_[node].first_child;
    while (next != 0 && nodes_[next].byte != byte) next = nodes_[next].next_sibling;
    return next;
}

void OutputText::build(const std::vector<std::string>& stop_sequences) {
    std::size_t bytes = 0;
    for (const std::string& stop : stop_sequences) bytes += stop.size();
    ZH_CHECK(bytes <= kMaxStopBytes && stop_sequences.size() <= kMaxStopBytes);
    nodes_.reserve(bytes + 1);
    stop_bytes_.reserve(stop_sequences.size());
    nodes_.emplace_back();
    for (std::size_t i = 0; i < stop_sequences.size(); ++i) {
        stop_bytes_.push_back(static_cast<std::uint16_t>(stop_sequences[i].size()));
        if (stop_sequences[i].empty()) continue;
        std::uint16_t node = 0;
        for (const char byte : stop_sequences[i]) {
            std::uint16_t next = child(node, byte);
            if (next == 0) {
                next = static_cast<std::uint16_t>(nodes_.size());
                Node& parent = nodes_[node];
                const Node fresh{.next_sibling = parent.first_child,
                                 .depth = static_cast<std::uint16_t>(parent.depth + 1),
                                 .byte = byte};
                parent.first_child = next;
                nodes_.push_back(fresh);
            }
            node = next;
        }
        if (nodes_[node].stop == 0) nodes_[node].stop = static_cast<std::uint16_t>(i + 1);
    }
    // Breadth first, so that a node's fail link (always shallower) is ready before its children's.
    std::vector<std::uint16_t> order{0};
    order.reserve(nodes_.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
        const std::uint16_t parent = order[i];
        for (std::uint16_t c = nodes_[parent].first_child; c != 0; c = nodes_[c].next_sibling) {
            order.push_back(c);
            Node& node = nodes_[c];
            std::uint16_t fail = parent;
            while (node.fail == 0 && fail != 0) {
                fail = nodes_[fail].fail;
                node.fail = child(fail, node.byte);
            }
            if (node.stop == 0) node.stop = nodes_[node.fail].stop;
        }
    }
}

bool OutputText::append(std::string_view token_bytes, std::string& out) {
    if (matched_ != kNoMatch) return true;
    for (const char byte : token_bytes)
        if (take_byte(static_cast<unsigned char>(byte), out)) return true;
    return rule_ == StopRule::kWholeToken && end_token(out);
}

bool OutputText::end_token(std::string& out) {
    if (!first_token_) matched_ = in_token_;
    first_token_ = false;
    in_token_ = kNoMatch;
    if (matched_ == kNoMatch) return false;
    // The token is sent whole; what it began of a code point will not be finished.
    if (partial_size_ > 0) out += kReplacement;
    partial_size_ = 0;
    return true;
}

void OutputText::flush(std::string& out) {
    if (matched_ != kNoMatch) return;
    partial_size_ = 0;
    release(0, out);
    state_ = 0;
}

bool OutputText::take_byte(unsigned char byte, std::string& out) {
    if (partial_size_ > 0) {
        const auto lead = static_cast<unsigned char>(partial_[0]);
        const bool fits = partial_size_ == 1 ? second_fits(lead, byte) : (byte & 0xC0U) == 0x80U;
        if (fits) {
            partial_[partial_size_++] = static_cast<char>(byte);
            if (partial_size_ < partial_need_) return false;
            const std::string_view whole(partial_, partial_size_);
            partial_size_ = 0;
            return take_text(whole, out);
        }
        if (replace_partial(out)) return true;
    }
    partial_need_ = sequence_length(byte);
    if (partial_need_ == 0) return take_text(kReplacement, out);
    if (partial_need_ == 1) {
        const char single = static_cast<char>(byte);
        return take_text(std::string_view(&single, 1), out);
    }
    partial_[0] = static_cast<char>(byte);
    partial_size_ = 1;
    return false;
}

bool OutputText::replace_partial(std::string& out) {
    partial_size_ = 0;
    return take_text(kReplacement, out);
}

// Takes one byte of text; the stop sequence that ends with it, or kNoMatch.
std::int32_t OutputText::advance(char byte) {
    std::uint16_t next = child(state_, byte);
    while (next == 0 && state_ != 0) {
        state_ = nodes_[state_].fail;
        next = child(state_, byte);
    }
    state_ = next;
    return nodes_[state_].stop - 1;
}

bool OutputText::take_text(std::string_view text, std::string& out) {
    if (nodes_.empty()) {
        out += text;
        return false;
    }
    if (rule_ == StopRule::kWholeToken) {
        out += text;
        for (const char byte : text) {
            const std::int32_t stop = advance(byte);
            if (in_token_ == kNoMatch) in_token_ = stop;
        }
        return false;
    }
    for (const char byte : text) {
        const std::int32_t stop = advance(byte);
        held_ += byte;
        if (stop == kNoMatch) continue;
        matched_ = stop;
        release(stop_bytes_[static_cast<std::size_t>(stop)], out);
        held_.clear();
        held_begin_ = 0;
        return true;
    }
    // `text` is one code point or U+FFFD, and a stop sequence begins with a lead byte: this cut
    // falls between code points.
    release(nodes_[state_].depth, out);
    return false;
}

void OutputText::release(std::size_t keep, std::string& out) {
    const std::size_t end = held_.size() - keep;
    out.append(held_, held_begin_, end - held_begin_);
    held_begin_ = end;
    // Moved to the front only when at least as much was released since: constant per byte.
    if (held_begin_ >= keep) {
        held_.erase(0, held_begin_);
        held_begin_ = 0;
    }
}

}  // namespace zerohop
