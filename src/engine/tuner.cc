#include "engine/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <thread>

#include "base/cpu_use.h"
#include "base/log.h"
#include "engine/attention_job.h"

namespace zerohop::engine {
namespace {

constexpr std::int64_t kBudgetNs = 4'500 * kNsPerMs;           // of measuring; loading is not in it
constexpr std::int64_t kRowLimitNs = 1'500 * kNsPerMs;         // of one candidate
constexpr std::int64_t kFirstLimitNs = 20'000 * kNsPerMs;      // while none has worked
constexpr std::int64_t kFewThreadsLimitNs = 5'000 * kNsPerMs;  // so, but more threads come after it
constexpr std::int32_t kSequences = 8;
constexpr std::int32_t kShortPrompt = 8;  // tokens of each of the eight
constexpr std::int32_t kDecodeSteps = 4;
constexpr std::int32_t kLongestPrompt = 640;  // attention is what differs: it must be felt
constexpr std::int32_t kChunk = 256;
// A stream per sequence cannot share prefixes by reference: it has to be better by this much.
constexpr double kPerSequenceHandicap = 0.85;
// Above this part of all CPUs' time, others say more about what was measured than the layout does.
constexpr double kMostOthers = 0.15;
// q8_0 rounds what the model remembers: it has to be better by this much.
constexpr double kLossyHandicap = 0.9;

Layout layout_of(const TuneRow& row) {
    return {.threads = row.threads,
            .flash_attention = row.flash_attention,
            .kv_type = row.kv_type,
            .unified = row.unified};
}

class Measurement {
  public:
    Measurement(const Model& model, Compute& compute) : model_(model), compute_(compute) {}

    // Fills the rates of `row`; prompt: tokens of the prefill. Sets valid = false when it cannot
    // run or, with late = true, is not through after `limit_ns`.
    void run(TuneRow& row, std::int32_t prompt, std::int64_t limit_ns) {
        row.valid = row.late = late_ = false;
        measure(row, prompt, limit_ns);
        row.late = late_;
        context_.reset();
    }

  private:
    void measure(TuneRow& row, std::int32_t prompt, std::int64_t limit_ns) {
        row.prefill_tps = row.decode1_tps = row.decode8_tps = 0;
        give_up_ns_ = mono_now() + limit_ns;
        const std::int32_t per_sequence = std::max(prompt + kDecodeSteps + 16, 256);
        const std::int32_t cells = per_sequence * (row.unified ? 2 : kSequences + 1);
        context_ = make_context(model_, layout_of(row),
                                {.cells = cells,
                                 .sequences = kSequences + 1,
                                 .batch = 512,
                                 .ubatch = 512,
                                 .outputs = kSequences + 1});
        if (context_ == nullptr) return;
        compute_.attach(context_.get());
        llama_set_abort_callback(
            context_.get(),
            [](void* self) { return mono_now() > static_cast<Measurement*>(self)->give_up_ns_; },
            this);
        llama_set_n_threads(context_.get(), row.threads, row.threads);
        Batch batch(512);
        std::int32_t filled = 0;
        const auto prefill = [&](std::int32_t tokens, std::int32_t sequence) {
            batch.clear();
            for (std::int32_t i = 0; i < tokens; ++i)
                batch.add(token(filled + i), filled + i, sequence, i + 1 == tokens);
            filled += tokens;
            return decode(batch);
        };
        if (prefill(8, 0) == 0) return;  // warm-up: buffers and graphs are made here
        std::int64_t took = 0;
        for (std::int32_t left = prompt - 8, n = 0; left > 0; left -= n) {
            n = std::min(left, kChunk);
            const std::int64_t part = prefill(n, 0);
            if (part == 0) return;
            took += part;
        }
        row.prefill_tps = rate(prompt - 8, took);

        std::int64_t best = std::numeric_limits<std::int64_t>::max();
        for (std::int32_t i = 0; i < kDecodeSteps; ++i) {
            const std::int64_t step = prefill(1, 0);
            if (step == 0) return;
            best = std::min(best, step);
        }
        row.decode1_tps = rate(1, best);

        // Sequence 0 stays: its cells are the foreign ones.
        batch.clear();
        for (std::int32_t s = 1; s <= kSequences; ++s)
            for (std::int32_t i = 0; i < kShortPrompt; ++i)
                batch.add(token(s * 31 + i), i, s, i + 1 == kShortPrompt);
        if (decode(batch) == 0) return;
        best = std::numeric_limits<std::int64_t>::max();
        for (std::int32_t i = 0; i < kDecodeSteps; ++i) {
            batch.clear();
            for (std::int32_t s = 1; s <= kSequences; ++s)
                batch.add(token(s * 7 + i), kShortPrompt + i, s, true);
            const std::int64_t step = decode(batch);
            if (step == 0) return;
            best = std::min(best, step);
        }
        row.decode8_tps = rate(kSequences, best);
        row.valid = true;
    }

    static double rate(std::int32_t tokens, std::int64_t ns) {
        return static_cast<double>(tokens) * 1e9 /
               static_cast<double>(std::max<std::int64_t>(ns, 1));
    }
    llama_token token(std::int32_t i) const {
        // Any ordinary tokens do: what is computed does not depend on which.
        const std::int32_t count = llama_vocab_n_tokens(model_.vocab);
        return 100 % count + (i * 37) % std::max(1, std::min(count - 100, 5000));
    }
    // Time of one step; 0 when it failed.
    std::int64_t decode(Batch& batch) {
        compute_.gate().lock();
        const MonoNs begin = mono_now();
        const std::int32_t rc = llama_decode(context_.get(), batch.get());
        if (rc == 0) llama_synchronize(context_.get());
        const std::int64_t took = std::max<std::int64_t>(1, mono_now() - begin);
        compute_.gate().unlock();
        late_ |= rc == 2;
        return rc == 0 ? took : 0;
    }

    const Model& model_;
    Compute& compute_;
    ContextPtr context_;
    MonoNs give_up_ns_ = 0;
    bool late_ = false;
};

void score(std::vector<TuneRow>& rows) {
    double prefill = 0, one = 0, eight = 0;
    for (const TuneRow& row : rows) {
        prefill = std::max(prefill, row.prefill_tps);
        one = std::max(one, row.decode1_tps);
        eight = std::max(eight, row.decode8_tps);
    }
    for (TuneRow& row : rows) {
        row.score = 0;
        if (!row.valid) continue;
        row.score =
            3 / (prefill / row.prefill_tps + one / row.decode1_tps + eight / row.decode8_tps);
        if (!row.unified) row.score *= kPerSequenceHandicap;
        if (row.kv_type == "q8_0") row.score *= kLossyHandicap;
    }
}

const TuneRow* best_of(const std::vector<TuneRow>& rows) {
    const TuneRow* best = nullptr;
    for (const TuneRow& row : rows)
        if (row.valid && (best == nullptr || row.score > best->score)) best = &row;
    return best;
}

std::string cpu_name() {
    std::ifstream in("/proc/cpuinfo");
    for (std::string line; std::getline(in, line);)
        if (line.starts_with("model name")) return line.substr(line.find(':') + 1);
    return "unknown";
}

std::string key_of(const Model& model, const LlamaOptions& options) {
    return fmt::format("4|{}|{}|{}|{} x{}|{}|gpu {}|own {}",
                       std::filesystem::path(options.path).filename().string(), model.file_bytes,
                       model.info.created_ns, cpu_name(), std::thread::hardware_concurrency(),
                       llama_version(), options.gpu_layers, options.own_attention && has_avx512());
}

std::optional<TuneRow> read_cache(const KeptFile& kept) {
    if (kept.path.empty()) return std::nullopt;
    std::ifstream in(kept.path);
    std::string line;
    if (!std::getline(in, line) || line != "key " + kept.key) return std::nullopt;
    TuneRow row;
    bool flash = false, unified = false;
    std::string a, b, c, d;
    if (!(in >> a >> row.threads >> b >> flash >> c >> row.kv_type >> d >> unified) ||
        a != "threads" || b != "flash_attention" || c != "kv_type" || d != "unified" ||
        row.threads < 1)
        return std::nullopt;
    row.flash_attention = flash;
    row.unified = unified;
    if (!(in >> a >> row.prefill_tps) || a != "prefill_tps") row.prefill_tps = 0;  // older file
    return row;
}

void write_cache(const KeptFile& kept, const TuneReport& report) {
    if (kept.path.empty()) return;
    std::error_code ignored;
    const std::filesystem::path path = kept.path;
    std::filesystem::create_directories(path.parent_path(), ignored);
    const std::filesystem::path fresh = path.string() + ".new";
    {
        std::ofstream out(fresh);
        const TuneRow& row = report.chosen;
        out << fmt::format(
            "key {}\nthreads {}\nflash_attention {}\nkv_type {}\nunified {}\nprefill_tps {:.1f}\n",
            report.key, row.threads, row.flash_attention ? 1 : 0, row.kv_type, row.unified ? 1 : 0,
            row.prefill_tps);
        for (const TuneRow& r : report.rows)
            out << fmt::format(
                "# {} threads, flash {}, {}, {}: {:.0f} {:.1f} {:.1f} tokens/s, {:.3f}\n",
                r.threads, r.flash_attention ? "on" : "off", r.kv_type,
                r.unified ? "unified" : "per sequence", r.prefill_tps, r.decode1_tps, r.decode8_tps,
                r.score);
        if (!out.flush()) {
            log_warn(kOrigin, "cannot write {}", fresh.string());
            return;
        }
    }
    std::filesystem::rename(fresh, path, ignored);  // whole or not at all
}

// What is fixed by the options, over what was measured.
void override_with(const LlamaOptions& options, TuneRow& row) {
    if (options.threads > 0) row.threads = options.threads;
    if (options.flash_attention) row.flash_attention = *options.flash_attention;
    if (!options.kv_type.empty()) row.kv_type = options.kv_type;
    if (options.unified) row.unified = *options.unified;
}

std::int32_t core_count() {
    return static_cast<std::int32_t>(std::max(1U, std::thread::hardware_concurrency()));
}

// What is taken unmeasured.
TuneRow default_row(const LlamaOptions& options) {
    TuneRow row{
        .threads = core_count(), .flash_attention = true, .kv_type = "f16", .unified = true};
    override_with(options, row);
    return row;
}

bool allowed(const LlamaOptions& options, const TuneRow& row) {
    TuneRow fixed = row;
    override_with(options, fixed);
    return fixed.threads == row.threads && fixed.flash_attention == row.flash_attention &&
           fixed.kv_type == row.kv_type && fixed.unified == row.unified;
}

// A stream for each sequence needs a whole context for each.
bool streams_fit(const Model& model, const LlamaOptions& options) {
    const std::int64_t cells = std::int64_t{wanted_context(model, options)} * options.max_sequences;
    if (options.kv_tokens > 0) return options.kv_tokens >= cells;
    return cells * kv_bytes(model, {}).per_token <= available_memory() / 8;
}

TuneReport measure(const Model& model, const LlamaOptions& options, const LoadProgress& progress) {
    TuneReport report;
    const std::int32_t cores = core_count();
    const std::shared_ptr<Compute> compute =
        shared_compute(options.threads > 0 ? options.threads : cores);
    Measurement measurement(model, *compute);
    const MonoNs begin = mono_now();
    std::int32_t prompt = 48;
    const auto attempt = [&](TuneRow row) {
        if (!allowed(options, row)) return;
        for (const TuneRow& done : report.rows)
            if (done.threads == row.threads && done.flash_attention == row.flash_attention &&
                done.kv_type == row.kv_type && done.unified == row.unified)
                return;
        const std::int64_t spent = mono_now() - begin;
        const std::int64_t left = kBudgetNs - spent;
        // The first to work is measured however long it takes: something must be chosen.
        const bool any = best_of(report.rows) != nullptr;
        if (any && left <= 0) return;
        if (progress) {
            progress(fmt::format("measuring {} threads, flash attention {}, K/V {}, {}",
                                 row.threads, row.flash_attention ? "on" : "off", row.kv_type,
                                 row.unified ? "unified" : "per sequence"),
                     std::min(1.0, static_cast<double>(spent) / static_cast<double>(kBudgetNs)));
        }
        measurement.run(row, prompt, any ? std::min(left, kRowLimitNs) : kFirstLimitNs);
        report.rows.push_back(row);
        score(report.rows);
    };
    TuneRow base = default_row(options);
    // Threads first, by short runs from one thread up: one cannot be held up by anything, and where
    // the cores are busy with other things more threads are slower. What takes longer than the best
    // has lost. It also says how long a prompt the budget allows.
    std::vector<TuneRow> trials;
    std::int64_t best_ns = 0;
    for (std::int32_t threads = 1;; threads = std::min(threads * 2, cores)) {
        TuneRow row = base;
        row.threads = threads;
        if (allowed(options, row)) {
            const bool any = best_of(trials) != nullptr;
            const MonoNs start = mono_now();
            measurement.run(row, 24,
                            any               ? std::max(kRowLimitNs / 3, best_ns)
                            : threads < cores ? kFewThreadsLimitNs
                                              : kFirstLimitNs);
            trials.push_back(row);
            score(trials);
            const TuneRow* best = best_of(trials);
            if (best != nullptr && best->threads == threads) best_ns = mono_now() - start;
            if (any && best->threads < threads / 2) break;
        }
        if (threads == cores) break;
    }
    if (const TuneRow* best = best_of(trials)) {
        base.threads = best->threads;
        prompt = std::clamp(static_cast<std::int32_t>(best->prefill_tps * 0.5), 24, kLongestPrompt);
    }
    attempt(base);
    const auto vary = [&](bool flash, const char* type) {
        const TuneRow* best = best_of(report.rows);
        if (best == nullptr) return;
        TuneRow row = *best;
        row.flash_attention = flash;
        row.kv_type = type;
        override_with(options, row);
        attempt(row);
    };
    vary(false, "f16");
    vary(true, "bf16");
    vary(true, "q8_0");
    vary(false, "bf16");
    if (const TuneRow* best = best_of(report.rows);
        best != nullptr && streams_fit(model, options)) {
        TuneRow row = *best;
        row.unified = false;
        attempt(row);
    }
    if (const TuneRow* best = best_of(report.rows)) report.chosen = *best;
    report.thread_rows = std::move(trials);
    return report;
}

Result<TuneReport> tune_model(const Model& model, const LlamaOptions& options,
                              const LoadProgress& progress, bool force) {
    const KeptFile kept = kept_file(model, options, "tune");
    if (!force) {
        if (const std::optional<TuneRow> cached = read_cache(kept)) {
            TuneReport report;
            report.chosen = *cached;
            override_with(options, report.chosen);
            report.from_cache = true;
            report.key = kept.key;
            return report;
        }
    }
    const CpuUse before = CpuUse::now();
    TuneReport report = measure(model, options, progress);
    report.key = kept.key;
    const double others = CpuUse::now().others_since(before);
    bool keep = others <= kMostOthers;
    if (!keep)
        log_warn(kOrigin,
                 "others took {:.0f} % of the CPUs meanwhile: what was measured is used but not "
                 "kept; it is measured again at the next start",
                 others * 100);
    const auto any_late = [](const std::vector<TuneRow>& rows) {
        return std::ranges::any_of(rows, &TuneRow::late);
    };
    if (report.chosen.threads < 1 && (any_late(report.thread_rows) || any_late(report.rows))) {
        log_warn(kOrigin, "{}: no layout could be measured in time", options.path);
        report.chosen = default_row(options);
        keep = false;
    }
    if (report.chosen.threads < 1) {
        return fail(Code::kInvalidRequest, kOrigin,
                    fmt::format("cannot load {}: no context layout works{}", options.path,
                                options.kv_type.empty() ? "" : " with the settings given"));
    }
    // What was partly dictated says nothing about the free choice.
    const bool free_choice = options.threads <= 0 && !options.flash_attention &&
                             options.kv_type.empty() && !options.unified;
    if (free_choice && keep) write_cache(kept, report);
    return report;
}

}  // namespace

KeptFile kept_file(const Model& model, const LlamaOptions& options, std::string_view what) {
    const std::string key = key_of(model, options);
    if (options.cache_dir.empty()) return {.path = {}, .key = key};
    std::uint64_t hash = 0xCBF29CE484222325ULL;  // FNV-1a
    for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
    return {.path = (std::filesystem::path(options.cache_dir) /
                     fmt::format("{}-{:016x}.txt", what, hash))
                        .string(),
            .key = key};
}

Result<Layout> choose_layout(const Model& model, const LlamaOptions& options,
                             const LoadProgress& progress) {
    const bool all_given = options.threads > 0 && options.flash_attention &&
                           !options.kv_type.empty() && options.unified;
    if (!options.tune || all_given) return layout_of(default_row(options));
    Result<TuneReport> report = tune_model(model, options, progress, false);
    if (!report) return std::unexpected(report.error());
    if (options.gauge && report->chosen.prefill_tps > 0)
        options.gauge->prefill_token_ns = 1e9 / report->chosen.prefill_tps;
    return layout_of(report->chosen);
}

Result<TuneReport> tune(const LlamaOptions& options, const LoadProgress& progress, bool force) {
    Result<std::shared_ptr<const Model>> model = Model::load(options, progress);
    if (!model) return std::unexpected(model.error());
    return tune_model(**model, options, progress, force);
}

std::int32_t wanted_context(const Model& model, const LlamaOptions& options) {
    const std::int32_t trained = std::max(model.trained_context, 512);
    return options.context_tokens > 0 ? std::min(options.context_tokens, trained)
                                      : std::min(trained, kMostContext);
}

std::string llama_version_text() {
    init_llama();
    return fmt::format("{} ({})", llama_version(), llama_print_system_info());
}

Result<ContextPlan> plan_context(const Model& model, const LlamaOptions& options,
                                 const Layout& layout) {
    ContextPlan plan;
    plan.sequences = std::clamp(options.max_sequences, 1, 256);
    plan.bytes = kv_bytes(model, layout);
    const std::int64_t per_token = std::max<std::int64_t>(1, plan.bytes.per_token);
    const std::int64_t states = plan.bytes.per_sequence * plan.sequences;
    const std::int64_t context = wanted_context(model, options);
    const std::int64_t free = available_memory();
    std::int64_t cells = options.kv_tokens;
    if (cells <= 0) {
        // Twice a context, where that is little: what is cached needs room beside what runs.
        const bool small = free > 0 && 2 * context * per_token <= free / 8;
        cells = layout.unified ? (small ? 2 : 1) * context : context * plan.sequences;
        if (free > 0)
            cells = std::min(cells, std::max<std::int64_t>((free / 2 - states) / per_token, 512));
    } else if (free > 0 && cells * per_token + states > free) {
        return fail(
            Code::kInvalidRequest, kOrigin,
            fmt::format("cannot load {}: a KV cache of {} tokens takes {} MiB, {} MiB of "
                        "memory are available",
                        options.path, cells, (cells * per_token + states) >> 20, free >> 20));
    }
    if (!layout.unified)
        cells = std::max<std::int64_t>(cells / plan.sequences, 256) * plan.sequences;
    cells = std::min<std::int64_t>(cells, std::numeric_limits<std::int32_t>::max() / 2);
    plan.cells = static_cast<std::int32_t>(cells);
    plan.kv_bytes = cells * per_token + states;
    const std::int64_t side = std::min(context, cells);
    if (free <= 0 || side * per_token <= (free - plan.kv_bytes) / 4)
        plan.side_cells = static_cast<std::int32_t>(side);
    return plan;
}

}  // namespace zerohop::engine
