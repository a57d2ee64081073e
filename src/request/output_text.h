// OutputText: from the bytes of sampled tokens to text that may be sent. One per sequence.
//
// Two things stand between a token's bytes and a client. A token may end inside a UTF-8 code point:
// such bytes wait for the rest, and bytes that can no longer become valid are replaced by U+FFFD
// (one per maximal subpart, Unicode 15 §3.9). And the end of the text may be the beginning of a
// stop sequence: it is held back until that is decided.
//
//     token bytes --repair--> valid UTF-8 --Aho-Corasick over the stops--> out | held back
//
// A match is decided at the byte where it is complete: the stop sequence whose end comes first
// wins, and of those that end at the same byte the longest (it starts first). So the result does
// not depend on how the bytes were cut into tokens. Held back is exactly the longest end of the
// text that is a beginning of some stop sequence, never more.
//
// Under StopRule::kWholeToken nothing is held back: text flows as it is sampled, and a match that
// is complete after a token (not the first) ends the output behind that token.
//
// Cost: amortized constant time per byte and stop-sequence branch; to make, time and memory
// (kBytesPerStopByte) linear in the stop sequences' bytes, of which there are at most
// kMaxStopBytes. Threads: one at a time. Nothing fails; any bytes are accepted. Stop sequences are
// valid UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "request/request.h"

namespace zerohop {

class OutputText {
  public:
    static constexpr std::int32_t kNoMatch = -1;
    static constexpr std::size_t kMaxStopBytes = 16'384;  // of all stop sequences together
    static constexpr std::size_t kBytesPerStopByte = 12;

    explicit OutputText(const std::vector<std::string>& stop_sequences,
                        StopRule rule = StopRule::kBeforeMatch);

    // Takes one token's bytes and appends to `out` what may be sent now: whole code points, no part
    // of a stop sequence. Returns true once a stop sequence has matched; from then on input is
    // ignored and `out` is never touched again.
    bool append(std::string_view token_bytes, std::string& out);

    // The output ends here without a match: appends what was held back as a possible stop sequence.
    // An unfinished code point is dropped: a character whose last token was not sampled any more is
    // not output (wire-contract check 49), and continuing from the text then gives it whole.
    void flush(std::string& out);

    // Index into the constructor's list, or kNoMatch.
    std::int32_t matched() const { return matched_; }

    // Bytes taken and not yet sent: 0 when nothing is held back.
    std::size_t held_bytes() const { return held_.size() - held_begin_ + partial_size_; }

  private:
    // Indexes of 16 bits: a node is a byte of a stop sequence. 0, the root, is nobody's child.
    struct Node {
        std::uint16_t first_child = 0;
        std::uint16_t next_sibling = 0;
        std::uint16_t fail = 0;   // longest proper end of this node's string that is a node
        std::uint16_t stop = 0;   // longest stop sequence that ends here, plus 1; 0: none
        std::uint16_t depth = 0;  // bytes from the root
        char byte = 0;
    };
    static_assert(sizeof(Node) == kBytesPerStopByte);

    std::uint16_t child(std::uint16_t node, char byte) const;
    void build(const std::vector<std::string>& stop_sequences);
    bool take_byte(unsigned char byte, std::string& out);
    bool take_text(std::string_view text, std::string& out);
    std::int32_t advance(char byte);
    bool end_token(std::string& out);
    bool replace_partial(std::string& out);
    void release(std::size_t keep, std::string& out);

    std::vector<Node> nodes_;  // empty when there are no stop sequences
    std::vector<std::uint16_t> stop_bytes_;
    std::uint16_t state_ = 0;
    std::int32_t matched_ = kNoMatch;
    StopRule rule_ = StopRule::kBeforeMatch;
    std::int32_t in_token_ = kNoMatch;  // kWholeToken: the first match within the current token
    bool first_token_ = true;
    // From held_begin_ on: the end of the text that may begin a stop sequence.
    std::string held_;
    std::size_t held_begin_ = 0;
    char partial_[4] = {};
    std::uint32_t partial_size_ = 0, partial_need_ = 0;
};

}  // namespace zerohop
