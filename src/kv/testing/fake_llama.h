// FakeLlama: llama.cpp's KV rules (v0.4.0) without the model, for tests of Residency. Every step of
// a plan is checked against them; a broken rule is a CHECK where llama.cpp would abort, fail or,
// worse, compute on stale data.
//
//   unified   cells_ by id, each with its token and number of sequences; a sequence is a list of
//   cells streams   a sequence is its buffer; seq_cp sets the length at once, the data at the next
//   decode
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/check.h"
#include "kv/residency.h"

namespace zerohop::kv::testing {

class FakeLlama {
  public:
    explicit FakeLlama(const ResidencyConfig& config) : config_(config), slots_(config.slots) {}

    void apply(const std::vector<Step>& steps) {
        for (const Step& s : steps) apply(s);
    }

    // Decodes tokens at positions [tokens of the slot …): one batch of one sequence.
    void decode(SlotId id, std::span<const Token> tokens) {
        for (const auto& [from, to] : pending_) at(to).data = at(from).data;
        pending_.clear();
        Slot& s = at(id);
        s.data.resize(s.length);
        for (const Token t : tokens) push(s, t);
        ZH_CHECK(s.length <= config_.slot_tokens);
        check_room();
    }
    // Drops rejected draft tokens and the like.
    void cut(SlotId id, std::uint32_t length) { trim(at(id), length); }

    // What the slot holds once the next decode has made the pending copies.
    std::vector<Token> after_copies(SlotId id) const {
        FakeLlama later = *this;
        for (const auto& [from, to] : pending_) later.at(to).data = later.at(from).data;
        const Slot& s = later.at(id);
        ZH_CHECK(s.data.size() >= s.length);
        return {s.data.begin(), s.data.begin() + s.length};
    }
    std::uint64_t cells() const { return cells_.size(); }
    std::size_t blobs() const { return blobs_.size(); }

  private:
    struct Slot {
        std::uint32_t length = 0;
        std::vector<Token> data;
        std::vector<std::uint64_t> cells;  // unified
    };
    Slot& at(SlotId id) {
        ZH_CHECK(id >= 0 && id < static_cast<SlotId>(slots_.size()));
        return slots_[static_cast<std::size_t>(id)];
    }
    bool pending(SlotId id) const {
        for (const auto& [from, to] : pending_)
            if (from == id || to == id) return true;
        return false;
    }
    void push(Slot& s, Token t) {
        s.data.push_back(t);
        ++s.length;
        if (!config_.unified) return;
        s.cells.push_back(++next_cell_);
        cells_[next_cell_] = 1;
    }
    void check_room() const {
        if (config_.unified) ZH_CHECK(cells_.size() <= config_.pool_tokens);
    }
    void trim(Slot& s, std::uint32_t length) {
        ZH_CHECK(length <= s.length);
        if (length == s.length) return;
        ZH_CHECK(config_.partial_removal || length == 0);
        s.length = length;
        if (!config_.unified) return;  // the buffer stays: metadata only
        s.data.resize(length);
        for (; s.cells.size() > length; s.cells.pop_back())
            if (--cells_[s.cells.back()] == 0) cells_.erase(s.cells.back());
    }
    void copy(const Step& step) {
        Slot& from = at(step.from);
        Slot& to = at(step.slot);
        ZH_CHECK(to.length == 0 && step.length > 0 && step.length <= from.length);
        if (!config_.unified) {
            to.length = from.length;  // whole, and its data later
            pending_.emplace_back(step.from, step.slot);
            return;
        }
        ZH_CHECK(config_.partial_removal || step.length == from.length);
        to.length = step.length;
        to.data.assign(from.data.begin(), from.data.begin() + step.length);
        to.cells.assign(from.cells.begin(), from.cells.begin() + step.length);
        for (const std::uint64_t c : to.cells) ++cells_[c];
    }
    void apply(const Step& step) {
        switch (step.kind) {
            case Step::Kind::kSave: {
                const Slot& s = at(step.slot);
                ZH_CHECK(step.length == s.length && !blobs_.contains(step.blob));
                for (const auto& [from, to] : pending_) ZH_CHECK(to != step.slot);  // stale data
                blobs_[step.blob] = {s.data.begin(), s.data.begin() + s.length};
                break;
            }
            case Step::Kind::kClear:
                trim(at(step.slot), 0);
                break;
            case Step::Kind::kTrim:
                trim(at(step.slot), step.length);
                break;
            case Step::Kind::kCopy:
                copy(step);
                break;
            case Step::Kind::kRestore: {
                ZH_CHECK(blobs_.contains(step.blob) && !pending(step.slot));
                Slot& s = at(step.slot);
                ZH_CHECK(s.length == 0);
                s.data.clear();
                for (const Token t : blobs_[step.blob]) push(s, t);
                ZH_CHECK(s.length == step.length);
                check_room();  // find_slot would fail
                break;
            }
            case Step::Kind::kForget:
                ZH_CHECK(blobs_.erase(step.blob) == 1);
                break;
        }
    }

    ResidencyConfig config_;
    std::vector<Slot> slots_;
    std::map<std::uint64_t, int> cells_;
    std::uint64_t next_cell_ = 0;
    std::vector<std::pair<SlotId, SlotId>> pending_;
    std::map<BlobId, std::vector<Token>> blobs_;
};

}  // namespace zerohop::kv::testing
