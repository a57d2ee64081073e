// KvStore: the KV of one model: who runs in it, what is cached in it, what is saved beside it.
//
//     kv::Residency decides  --Steps-->  KvStore carries them out on the llama context
//     blobs: saved sequences in host memory, bounded by Residency
//
// Sequence ids 0 … slots−1 are Residency's; id `slots` is scratch, by which KV computed elsewhere
// is taken in (docs/formats/kv-steps.md). With prefix caching off everything is dropped when its
// request ends and nothing is looked up.
//
// Threads: the engine's, but for cached_approx() (any). Errors: none; a restore that llama.cpp
// refuses is computed anew.
#pragma once

#include <llama.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/llama_engine.h"
#include "engine/model.h"
#include "engine/pages.h"
#include "engine/sequence.h"
#include "kv/residency.h"
#include "request/engine_port.h"

namespace zerohop::engine {

class KvStore {
  public:
    struct Options {
        bool prefix_cache = true;
        bool unified = true;
        bool partial_removal = true;
        std::int32_t slots = 16;
        std::int64_t pool_tokens = 0;
        std::int32_t slot_tokens = 0;
        KvBytes bytes;
        std::int64_t host_bytes = 0;        // at most
        std::int64_t host_first_bytes = 0;  // to begin with
        std::int64_t idle_tokens = 0;       // kept in the pool for nobody; more goes to host memory
        double pin_share = 0.25;
        double pin_total_share = 0.75;
    };
    // Told of every removal and copy. Tests only.
    using OnChange = std::function<void(const StepRecord&)>;

    KvStore(llama_context* context, const Options& options, OnChange on_change);

    enum class Admitted : std::uint8_t { kGo, kWait, kFull };
    // kGo: sequence.id and computed are set and its KV is there; room for `reserve` tokens beyond
    // its own is kept. kWait: another one is computing its beginning (sequence.wait_for/_until).
    Admitted admit(Sequence& sequence, std::int64_t reserve, MonoNs now);
    // How many tokens of its prompt it need not compute itself, as things are now.
    std::int32_t known(const Sequence& sequence) const {
        return static_cast<std::int32_t>(residency_.known_prefix(sequence.ns, sequence.tokens));
    }
    // Whether what a sequence waits for has come, or will never come.
    bool wait_is_over(const Sequence& sequence) const;
    bool cover(const Sequence& sequence, std::int64_t tokens);
    void computed(const Sequence& sequence);  // sequence.computed tokens are there
    void sampled(const Sequence& sequence, std::int32_t token);
    std::int32_t held(const Sequence& sequence) const;  // cells there, by llama.cpp's own count
    // Rejected drafts, after an abort. False: this model's memory cannot be cut there.
    bool cut(const Sequence& sequence, std::int32_t from);
    // The sequence gives up its slot; what it computed stays cached if that is wanted and the
    // context holds just that.
    void release(Sequence& sequence, bool keep);
    // A call failed: what the sequence began with is not used again either.
    void distrust(const Sequence& sequence);
    void after_decode() {
        residency_.on_decode();
        copy_pending_ = false;
    }
    void pin(const Sequence& sequence, std::int32_t tokens, MonoNs until);
    void forget(std::string_view workspace, std::uint64_t id);

    // A sequence's KV from and to another context, whose only sequence is 0.
    bool copy_out(const Sequence& sequence, llama_context* to);
    bool take_in(Sequence& sequence, llama_context* from, std::int32_t tokens);

    void set_prefill_cost(double ns_per_token);
    // Makes the pool small for those that will decode: what nobody uses goes, saved before.
    void make_way();
    // Saves something that is worth it, for moments in which nobody waits. False: nothing.
    bool save_ahead();
    // So many cells that nobody uses, as far as idle ones can give way.
    void keep_free(std::int64_t tokens);
    // Between steps. now_or_never: the engine is about to sleep.
    void tidy(MonoNs now, bool now_or_never);
    MonoNs next_tidy() const;  // when it is to be called though nothing happens
    // When nothing has run for a while: what is idle goes to host memory, and the pool's pages back
    // to the system once it is empty.
    void give_back();
    void add_to(EngineStats& stats) const;  // engine thread
    std::shared_ptr<const CacheList> cached_approx() const;

  private:
    bool carry_out(const std::vector<kv::Step>& steps);  // false: a restore was refused
    bool save(const kv::Step& step);
    bool restore(const kv::Step& step);
    std::int32_t held(std::int32_t slot) const;
    bool remove(std::int32_t slot, std::int32_t from);
    void doubt_costs();
    void shrink_host(MonoNs now);
    void publish();

    llama_context* const context_;
    llama_memory_t const memory_;
    const Options options_;
    const OnChange on_change_;
    kv::Costs costs_;
    kv::Residency residency_;
    std::unordered_map<kv::BlobId, PageBuffer> blobs_;
    std::vector<kv::Step> steps_;
    std::vector<std::uint64_t> runs_;  // per slot: order of the sequence that runs in it; 0: none
    std::vector<std::int32_t> run_computed_;
    std::unordered_map<std::uint64_t, std::string> owners_;  // cache owners by Namespace::owner
    bool changed_ = true;                                    // what is held, since it was published
    bool unsaved_ = false;       // something became idle since save_ahead() found nothing
    bool copy_pending_ = false;  // between streams: done by the next decode
    MonoNs published_ns_ = 0, shrunk_ns_ = 0;
    mutable std::mutex mutex_;
    std::shared_ptr<const CacheList> list_;  // guarded by mutex_
};

}  // namespace zerohop::engine
