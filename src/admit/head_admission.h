// HeadAdmission: what the head decided, for the life of one exchange; then its price, its ticket
// and its settlement. Call order: head_decider.h.
//
// Owning thread: the exchange's I/O thread, for everything.
// Lifetime: owned by the exchange. Its destructor gives back what was reserved, and settles what
// was admitted and never settled as "input used, no output".
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "admit/admit_table.h"
#include "admit/hints.h"
#include "api/head_policy.h"

namespace zerohop::admit {

// What a request is admitted for; prices the sched::FairItem.
struct Price {
    std::int32_t input_tokens = 0;
    std::int32_t output_tokens = 0;  // expected: max(hint, learned), at most max_tokens
    std::int64_t tokens() const { return std::int64_t{input_tokens} + output_tokens; }
};

class HeadAdmission final : public api::Admission {
  public:
    HeadAdmission(std::shared_ptr<const AdmitTable> table, const Binding& binding,
                  std::shared_ptr<TokenState> token)
        : table_(std::move(table)), binding_(&binding), token_(std::move(token)) {}
    ~HeadAdmission() override;

    // --- what the head said ----------------------------------------------------------------------
    const Topology& topology() const { return *table_->topology; }
    const auth::KeySnapshot& keys() const { return *table_->keys; }
    const auth::KeyRecord* key() const { return binding_->key; }  // null: anonymous
    bool by_token() const { return token_ != nullptr; }
    // By the key itself: a token only narrows, also one that was asked for without a wish. Without
    // keys it is whoever runs the server.
    bool is_admin() const { return key() == nullptr || (key()->admin && !by_token()); }
    const Model* model() const { return model_; }  // null until a hint or choose_model named it
    // count_tokens: never queued, no first token to be late with.
    bool counts_only() const { return class_ == Quota::kCounts; }
    std::size_t lane() const { return lane_; }  // index in topology().lanes()
    Priority priority() const { return priority_; }
    bool skeleton() const { return skeleton_; }                   // x-anthropic-debug: skeleton
    std::optional<bool> buffering() const { return buffering_; }  // x-anthropic-stream-buffering
    // max(hint, learned): of the prompt's structure once that is known, else of the key.
    std::int32_t expected_output() const;
    // Whether expected_output() is only what every new key begins with.
    bool output_is_a_guess() const;

    // --- then, in this order ---------------------------------------------------------------------
    // Each chunk of the body: keeps the soft reservation.
    void on_body_bytes(MonoNs now) override { hold_.touch(now); }
    // The body's model, id or alias. Fails with kInvalidRequest when the hint named another one,
    // kNotFound, kPermission, or kRateLimited: its first token would come too late.
    Result<const Model*> choose_model(std::string_view name);
    Status check_model(std::string_view name) override;
    bool may_use(std::string_view model_id) const override;
    std::string_view hinted_model() const override {
        return model_from_hint_ ? std::string_view(model_->id) : std::string_view();
    }
    void on_structure(const std::array<StructureKey, 3>& structure) override {
        structure_ = structure;
    }
    Terms terms() const override;
    // The prompt is tokenized: charges input and expected output, and ends the soft reservation.
    // Fails with kRateLimited (headers included): a quota, or the first token would come too late.
    Result<Price> admit(std::int32_t input_tokens, std::int32_t max_output, MonoNs now,
                        WallNs wall);
    Status charge(std::int32_t input_tokens, std::int32_t max_output, MonoNs now,
                  WallNs wall) override;
    // The answer ended. What was charged and not used goes back, and what was read from the cache
    // unless that counts; a cancelled one pays for what it used; {} for a request that never ran.
    // `completed` answers teach the usual length.
    void settle(const Usage& used, bool completed, MonoNs now) override;
    void refund_request(MonoNs now) override;
    void forget_prompts() override;

    // anthropic-ratelimit-…: current values, for an answer whose head is sent later than decide().
    void append_rate_limits(MonoNs now, WallNs wall, std::vector<wire::Header>& out) const override;
    bool has_soft_reservation() const { return hold_.held(); }

  private:
    friend class HeadDecider;
    QuotaCharge::Groups groups() const {
        return {&binding_->workspace->quota, &binding_->key_state->quota,
                token_ ? &token_->quota : nullptr};
    }
    Status check_scope(const Model& model) const;
    Error unknown_model(std::string_view name) const;
    std::vector<wire::Header> rate_limits(MonoNs now, WallNs wall) const;
    Error quota_error(const QuotaRefusal& refusal, MonoNs now, WallNs wall) const;
    FirstTokenPromise promise() const;  // of its lane; none where none is made
    // Whether high priority would keep its lane's ttft_p99_ms with a prompt of so many tokens, if
    // it has to wait so long for its start. kRateLimited: it would be late.
    Status check_first_token(std::uint32_t start_ms, std::int64_t input_tokens) const;
    // The same for a prompt that is not tokenized, as the queue is now.
    Status check_first_token_now();

    const std::shared_ptr<const AdmitTable> table_;
    const Binding* const binding_;
    const std::shared_ptr<TokenState> token_;
    const Model* model_ = nullptr;
    bool model_from_hint_ = false;
    std::uint8_t lane_ = 0;
    Priority priority_ = Priority::kNormal;
    bool skeleton_ = false;
    std::optional<bool> buffering_;
    std::int32_t hinted_tokens_ = 0;
    std::int64_t content_length_ = -1;
    Quota class_ = Quota::kRequests;  // whose meter the request was charged to
    bool request_charged_ = false;
    std::uint32_t start_ms_ = 0;  // as last read before it was queued itself
    std::array<StructureKey, 3> structure_{};
    SoftHold hold_;
    Price charged_;
    bool open_ = false;  // charged and not settled
    MonoNs last_now_ = 0;
};

}  // namespace zerohop::admit
