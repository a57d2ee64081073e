// Sampler: the next token from a row of logits. One per sequence.
//
// Order, as llama.cpp's: repeat penalty, top_k, top_p, min_p, temperature, then a draw. temperature
// 0 takes the largest logit. Plain temperature sorts nothing: two passes over the row, and an exp()
// only for tokens within e^-30 of the best (the rest together weigh < 1e-8 for any vocabulary).
// Threads: one at a time. NaN logits count as impossible. Nothing fails.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace zerohop::engine {

struct SamplerParams {
    float temperature = 1.0F;         // 0: greedy
    float top_p = 1.0F;               // 1: off
    float min_p = 0.0F;               // 0: off
    std::int32_t top_k = 0;           // 0: off
    float repeat_penalty = 1.0F;      // 1: off
    std::int32_t penalty_last_n = 0;  // tokens the penalty looks back; 0: off
    std::uint64_t seed = 0;
};

std::int32_t argmax(std::span<const float> logits);

// Whether something can be drawn from them: no NaN, no +∞, and one at least that is finite.
bool are_numbers(std::span<const float> logits);

class Sampler {
  public:
    explicit Sampler(const SamplerParams& params);

    // `logits` may be changed (penalties). `history` is the sequence so far, for penalties.
    std::int32_t sample(std::span<float> logits, std::span<const std::int32_t> history);

    const SamplerParams& params() const { return params_; }

  private:
    struct Candidate {
        float logit;
        std::int32_t token;
    };

    double next_uniform();
    void penalize(std::span<float> logits, std::span<const std::int32_t> history) const;
    std::int32_t draw_from_all(std::span<const float> logits);
    std::int32_t draw_from(std::span<const Candidate> candidates);
    void take_top_k(std::span<const float> logits);
    void take_all_plausible(std::span<const float> logits);
    void cut_top_p();

    SamplerParams params_;
    std::uint64_t state_;
    std::vector<Candidate> candidates_;  // the best first; scratch of one call
};

}  // namespace zerohop::engine
