// Residency: where cached KV really lies, and the cheapest way to give a request its prefix.
//
//   slots 0 … n−1   llama.cpp sequence ids (≤ 256)                     resident tree: entry per
//   slot
//     unified       one pool of cells; a cell may belong to many slots; copying is metadata; the
//     tree's
//                   tokens are the cells (+ duplicates: what two slots computed or restored apart);
//                   eviction trims slots by block
//     streams       each slot owns slot_tokens cells; copying copies the whole stream; nothing is
//                   shared, so a slot is overwritten as a whole
//   blobs           saved sequences in host memory, bounded in bytes   stored tree: entry per blob
//
// admit() prices four ways with the measured costs: take over an idle slot (cut to what fits), copy
// from a slot, restore a blob, compute anew; each with the loss of the slot it overwrites. It
// returns Steps, to be done in order on the llama context *before the next decode*, also with
// kFull. With a prefix being computed by a running request it answers kWait instead: ask again when
// that request has got so far or has ended.
//
// llama.cpp's rules it keeps (v0.4.0): positions of a slot are contiguous from 0; between streams
// only whole sequences are copied, and the data moves at the *next decode*, so until then such a
// slot is neither saved nor restored into; a restore needs free cells for the whole blob; a model
// without partial removal keeps a sequence whole or not at all, so only one that ends exactly in
// the prompt helps. At least the prompt's last token is always computed, for its logits.
//
// Threads: the engine's. Memory: the two trees and a few words a slot; blob bytes are the caller's,
// counted here. Nothing fails but by kFull / kNever; a failed restore is reported by abandon().
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "kv/prefix_tree.h"

namespace zerohop::kv {

using SlotId = std::int32_t;
using BlobId = std::uint64_t;

struct Costs {  // ns; measured per model and machine
    double prefill_per_token = 1e6;
    double copy_fixed = 0, copy_per_token = 100;
    double restore_fixed = 1e6, restore_per_token = 20'000;
    double save_fixed = 1e6, save_per_token = 20'000;
};

struct ResidencyConfig {
    bool unified = true;
    std::uint32_t slots = 16;       // sequence ids, ≤ 256
    std::uint64_t pool_tokens = 0;  // unified: cells of the pool
    std::uint32_t slot_tokens = 0;  // most tokens one sequence may hold
    bool partial_removal = true;
    std::uint64_t host_bytes = 0;  // most of the host tier; 0: none
    // Of it, to begin with: more as prompts come back whose blobs had to go.
    std::uint64_t host_first_bytes = ~0ULL;
    std::uint64_t bytes_per_token = 0;
    std::uint64_t bytes_per_sequence = 0;    // beside its tokens' (recurrent states)
    std::uint64_t pin_cap_tokens = 0;        // per workspace, in each tier
    std::uint64_t pin_total_tokens = ~0ULL;  // of all workspaces, in each tier
    std::uint32_t min_reuse = 16;            // shorter matches are computed anew
    std::uint32_t min_wait = 64;             // a shorter promised prefix is not waited for
    double return_chance = 0.3;              // that a cached prefix is needed again: weighs losses
    Costs costs;
};

struct Step {
    enum class Kind : std::uint8_t {
        kSave,     // state_seq_get_data(slot) → blob; `length` tokens
        kClear,    // seq_rm(slot, 0, end)
        kTrim,     // seq_rm(slot, length, end)
        kCopy,     // seq_cp(from, slot): unified [0, length), streams whole
        kRestore,  // state_seq_set_data(slot, blob)
        kForget,   // free the blob
    };
    Kind kind = Kind::kClear;
    SlotId slot = -1;
    SlotId from = -1;
    std::uint32_t length = 0;
    BlobId blob = 0;
};

struct Ask {
    Namespace ns;
    std::span<const Token> tokens;  // not empty
    std::uint32_t reserve = 0;      // output expected: room kept for it
    bool may_wait = true;           // false where waiting cannot help (the other one is paused)
    MonoNs now = 0;
};

struct Grant {
    enum class Outcome : std::uint8_t { kGo, kWait, kFull, kNever };  // kNever: longer than a slot
    enum class How : std::uint8_t { kTakeOver, kCopy, kRestore, kCompute };
    Outcome outcome = Outcome::kFull;
    How how = How::kCompute;
    SlotId slot = -1;  // kGo: decode tokens[cached …] here, positions from `cached` on
    std::uint32_t cached = 0;
    SlotId wait_for = -1;          // kWait: this slot is computing it …
    std::uint32_t wait_until = 0;  // … and ask again once it has computed so many
    std::vector<Step> steps;       // to be done in any case
};

// What is held, for lists. Ids are random: nobody reads others' activity off his own.
struct Holding {
    std::uint64_t id = 0;
    Namespace ns;
    std::uint32_t tokens = 0;
    std::uint64_t hits = 0;
    MonoNs pinned_until = 0;  // 0: not pinned
    bool running = false;
    bool in_host_memory = false;
};

struct ResidencyCounters {
    std::uint64_t take_overs = 0, copies = 0, restores = 0, computes = 0, waits = 0;
    std::uint64_t saves = 0, blobs_dropped = 0, slots_overwritten = 0;
    std::uint64_t tokens_weighed = 0;  // looked at to decide what is worth saving, and to save it
    std::uint64_t blob_bytes = 0, host_limit = 0;
    std::uint32_t blobs = 0;
    TreeCounters resident;
};

class Residency {
  public:
    explicit Residency(const ResidencyConfig& config);

    Grant admit(const Ask& ask);

    // A running slot's progress: KV of its first n tokens is there; a sampled token follows.
    void computed(SlotId slot, std::uint32_t n);
    void sampled(SlotId slot, Token token);
    // Room for `tokens` in all; appends steps (evictions). False: none, pause or pre-empt.
    bool cover(SlotId slot, std::uint32_t tokens, std::vector<Step>& steps);
    // The sequence ends. Before this the caller has removed cells beyond what it reported computed.
    // keep = false (or nothing computed): its cells go at once.
    void finish(SlotId slot, bool keep, std::vector<Step>& steps);
    // A step of its grant failed (restore): slot and blob are forgotten; ask again.
    void abandon(SlotId slot, std::vector<Step>& steps);
    // A call with this slot failed: what it was restored from may be why. To be followed by
    // finish().
    void distrust(SlotId slot, std::vector<Step>& steps);
    // After every llama_decode: pending stream copies are done.
    void on_decode();

    // Saves one idle slot whose loss would be worth its bytes, cells and all left as they are: for
    // moments in which nobody waits. False: there is none, or no room without giving up another.
    bool save_ahead(std::vector<Step>& steps);
    // Empties idle slots, saved or worth saving first, until they hold at most so many tokens of
    // their own: in a unified pool every decode looks at foreign cells, so what nobody uses costs
    // time. With a host tier only.
    void trim_idle(std::uint64_t most, std::vector<Step>& steps);
    // So many cells that nobody uses, for those who will come: idle slots give way as in
    // trim_idle(), running ones never.
    void keep_free(std::uint64_t tokens, std::vector<Step>& steps);
    // Drops what an owner holds: one holding, or all (id 0). Running ones stay until finish().
    void forget(std::uint64_t owner, std::uint64_t id, std::vector<Step>& steps);
    void list(std::vector<Holding>& out) const;

    // What a kSave really took.
    void saved(BlobId id, std::uint64_t bytes);
    // Drops blobs, the longest unused first, until they have at most so many bytes and none was
    // last used before that time; pinned ones stay.
    void shrink_host(std::uint64_t most, MonoNs unused_since, std::vector<Step>& steps);
    // Empties all idle slots, but for what is worth saving and cannot be. True: no slot holds
    // anything now.
    bool put_away(std::vector<Step>& steps);

    Result<PinId> pin(SlotId slot, std::uint32_t length, MonoNs until);
    void unpin(PinId id) { resident_.unpin(id); }
    void expire(MonoNs now);

    // How much of a prompt is here, being computed by another, or in the host tier: for pricing,
    // before admit.
    std::uint32_t known_prefix(const Namespace& ns, std::span<const Token> tokens) const;

    void set_costs(const Costs& costs) { config_.costs = costs; }
    ResidencyCounters counters() const;
    const PrefixTree& resident() const { return resident_; }
    void check() const;

  private:
    enum class Use : std::uint8_t { kFree, kIdle, kRunning };
    struct Slot {
        Use use = Use::kFree;
        EntryId entry = 0;
        std::uint64_t id = 0;  // for lists
        Namespace ns;
        std::uint32_t reserve = 0;  // tokens in all that room is kept for, while running
        std::uint32_t extra = 0;    // unified: own cells of tokens that the tree counts elsewhere
        BlobId restored = 0;
        std::uint64_t hits = 0;
        bool forget = false;   // drop it when it ends
        bool weighed = false;  // evicting it began: whether to save it was decided then
        bool copying = false;  // streams: source or target of a copy not yet done
    };
    struct Blob {
        EntryId entry = 0;
        std::uint64_t id = 0;  // for lists
        Namespace ns;
        std::uint64_t bytes = 0;
        std::uint64_t hits = 0;
        MonoNs used = 0;  // last
        std::list<BlobId>::iterator order;
    };
    struct Gone {  // tokens of a blob that had to go
        EntryId entry = 0;
        std::uint64_t owner = 0;
    };
    struct Option {
        Grant::How how = Grant::How::kCompute;
        SlotId source = -1;  // take over, copy
        BlobId blob = 0;
        std::uint32_t cached = 0;
        SlotId target = -1;
        double cost = 0;
    };

    // residency.cc: choosing
    std::optional<Option> cheapest(const Ask& ask, bool restores) const;
    void price_slots(const Ask& ask, std::vector<Option>& options) const;
    void price_blobs(const Ask& ask, std::vector<Option>& options) const;
    SlotId victim(SlotId except, bool for_restore) const;
    double loss(SlotId slot, std::uint32_t kept) const;
    double compute_cost(const Ask& ask, std::uint32_t cached) const;
    // residency_steps.cc: doing
    bool carry_out(const Ask& ask, const Option& option, Grant& grant);
    void occupy(const Ask& ask, const Option& option);
    void give_up(const Option& option, std::vector<Step>& steps);
    bool restore(const Option& option, std::vector<Step>& steps);
    void vacate(SlotId slot, std::vector<Step>& steps);
    bool spill_pays(SlotId slot);
    void spill(SlotId slot, std::vector<Step>& steps);
    void drop_blob(BlobId id, std::vector<Step>& steps);
    bool make_room(std::vector<Step>& steps);
    void evict(SlotId slot, std::uint64_t tokens, std::vector<Step>& steps);
    bool yield_pinned(std::vector<Step>& steps);
    // residency_host.cc
    std::uint64_t bytes_of(std::uint32_t length) const;  // of a blob
    void remember_gone(const Blob& blob);
    void forget_gone(std::uint64_t owner);
    void grow_host(const Ask& ask);
    std::uint64_t idle_tokens() const;
    // Cells beyond the tree's: growth and duplicates.
    std::uint64_t promised(bool of_idle) const;
    void release(SlotId slot);
    Slot& at(SlotId slot) { return slots_[static_cast<std::size_t>(slot)]; }
    const Slot& at(SlotId slot) const { return slots_[static_cast<std::size_t>(slot)]; }

    ResidencyConfig config_;
    PrefixTree resident_, stored_, gone_;  // gone_: tags are bytes
    std::vector<Slot> slots_;
    std::unordered_map<BlobId, Blob> blobs_;
    std::list<BlobId> blob_order_;  // most recently used first
    std::deque<Gone> gone_order_;   // oldest first
    std::uint64_t blob_bytes_ = 0, host_limit_ = 0;
    MonoNs now_ = 0;  // as last told
    BlobId next_blob_ = 1;
    ResidencyCounters count_;
};

}  // namespace zerohop::kv
