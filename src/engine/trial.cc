#include "engine/trial.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "engine/tuner.h"

namespace zerohop::engine {
namespace {

constexpr MonoNs kTrialLimit = 120 * kNsPerSec;
constexpr std::int32_t kPrompt = 24;  // tokens
constexpr std::int32_t kShort = 4;
constexpr std::string_view kServes = "serves", kStreams = "needs a stream for each sequence",
                           kFails = "fails: ";

std::string failed_at(std::string_view step) {
    return fmt::format("{}llama.cpp fails with this model at {}", kFails, step);
}

int g_told = -1;  // the child's end of the pipe

void tell(std::string_view line) {
    const std::string text = std::string(line) + "\n";
    if (write(g_told, text.data(), text.size()) < 0) _exit(3);
}

// --- the child ----------------------------------------------------------------------------------

class Child {
  public:
    Child(const Model& model, const Layout& layout, std::int32_t sequences)
        : model_(model), sequences_(sequences), batch_(64) {
        context_ = make_context(model, layout,
                                {.cells = 256 * sequences,
                                 .sequences = sequences,
                                 .batch = 64,
                                 .ubatch = 64,
                                 .outputs = 64});
        if (context_ != nullptr) memory_ = llama_get_memory(context_.get());
    }

    // One line of kServes … kFails.
    std::string run() {
        if (context_ == nullptr) return std::string(kServes);  // why, making the real one will tell
        if (memory_ == nullptr)
            return fmt::format("{}an embedding model, nothing to chat with", kFails);
        if (sees_ahead())
            return fmt::format("{}it looks ahead in its text, as embedding models do", kFails);
        for (const auto& [what, step] : steps()) {
            tell(what);
            if (!(this->*step)()) return failed_at(what);
        }
        return std::string(kServes);
    }

  private:
    using Step = bool (Child::*)();
    std::vector<std::pair<std::string_view, Step>> steps() const {
        std::vector<std::pair<std::string_view, Step>> out = {{"a prompt", &Child::prompt}};
        if (sequences_ > 1) {
            out.emplace_back("several sequences at once", &Child::several);
            out.emplace_back("sharing a beginning", &Child::share);
        }
        if (model_.tail_removal) out.emplace_back("taking back tokens", &Child::cut);
        out.emplace_back("saving and restoring", &Child::save);
        out.emplace_back("a call that is ended early", &Child::end_early);
        return out;
    }

    llama_token token(std::int32_t i) const {
        const std::int32_t count = llama_vocab_n_tokens(model_.vocab);
        return (100 + i * 37) % count;
    }
    void add(std::int32_t sequence, std::int32_t from, std::int32_t count,
             bool all_logits = false) {
        for (std::int32_t i = from; i < from + count; ++i)
            batch_.add(token(i + 1000 * sequence), i, sequence,
                       all_logits || i + 1 == from + count);
    }
    bool decode() {
        const bool good = llama_decode(context_.get(), batch_.get()) == 0;
        if (good) llama_synchronize(context_.get());
        batch_.clear();
        return good;
    }
    bool more(std::int32_t sequence) {
        add(sequence, llama_memory_seq_pos_max(memory_, sequence) + 1, 1);
        return decode();
    }

    // Whether a token's output changes with what follows it.
    bool sees_ahead() {
        std::vector<float> first[2];
        const auto vocab = static_cast<std::size_t>(llama_vocab_n_tokens(model_.vocab));
        for (std::int32_t round = 0; round < 2; ++round) {
            for (std::int32_t i = 0; i < 3; ++i)
                batch_.add(token(i == 0 ? 0 : i + 50 * (round + 1)), i, 0, true);
            if (!decode()) return false;
            const float* logits = llama_get_logits_ith(context_.get(), 0);
            if (logits == nullptr) return false;
            first[round].assign(logits, logits + vocab);
            llama_memory_seq_rm(memory_, 0, -1, -1);
        }
        double size = 0, difference = 0;
        for (std::size_t i = 0; i < vocab; ++i) {
            size = std::max<double>(size, std::fabs(first[0][i]));
            difference = std::max<double>(difference, std::fabs(first[0][i] - first[1][i]));
        }
        return difference > 0.05 * size;
    }
    bool prompt() {
        add(0, 0, kPrompt);
        return decode() && more(0);
    }
    bool several() {
        for (std::int32_t s = 1; s < sequences_; ++s) add(s, 0, kShort);
        if (!decode()) return false;
        for (std::int32_t s = 0; s < sequences_; ++s)
            add(s, llama_memory_seq_pos_max(memory_, s) + 1, 1);
        return decode();
    }
    bool share() {
        const std::int32_t to = sequences_ - 1;
        if (!llama_memory_seq_rm(memory_, to, -1, -1)) return false;
        llama_memory_seq_cp(memory_, 0, to, -1, -1);
        return more(to) && more(0);
    }
    bool cut() {
        const std::int32_t size = llama_memory_seq_pos_max(memory_, 0) + 1;
        const std::int32_t keep = model_.partial_removal ? kPrompt / 2 : size - 2;
        return llama_memory_seq_rm(memory_, 0, keep, -1) &&
               llama_memory_seq_pos_max(memory_, 0) + 1 == keep && more(0);
    }
    bool save() {
        std::vector<std::uint8_t> state(llama_state_seq_get_size(context_.get(), 0));
        const std::int32_t size = llama_memory_seq_pos_max(memory_, 0) + 1;
        return llama_state_seq_get_data(context_.get(), state.data(), state.size(), 0) ==
                   state.size() &&
               llama_memory_seq_rm(memory_, 0, -1, -1) &&
               llama_state_seq_set_data(context_.get(), state.data(), state.size(), 0) != 0 &&
               llama_memory_seq_pos_max(memory_, 0) + 1 == size && more(0);
    }
    bool end_early() {
        llama_set_abort_callback(context_.get(), [](void*) { return true; }, nullptr);
        (void)more(0);
        llama_set_abort_callback(context_.get(), nullptr, nullptr);
        if (!llama_memory_seq_rm(memory_, 0, -1, -1)) return false;
        return prompt();
    }

    const Model& model_;
    const std::int32_t sequences_;
    Batch batch_;
    ContextPtr context_;
    llama_memory_t memory_ = nullptr;
};

bool g_wants_streams = false;

[[noreturn]] void be_child(const Model& model, const Layout& layout, std::int32_t sequences) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    setenv("GGML_NO_BACKTRACE", "1", 1);
    // The log may be locked by a thread that is not here.
    llama_log_set(
        [](ggml_log_level level, const char* text, void*) {
            if (level == GGML_LOG_LEVEL_WARN && text != nullptr &&
                std::string_view(text).find("per-sequence streams") != std::string_view::npos)
                g_wants_streams = true;
        },
        nullptr);
    ggml_set_abort_callback([](const char* why) { tell(fmt::format("{}{}", kFails, why)); });
    std::string result;
    try {
        Child child(model, layout, sequences);
        result = child.run();
        if (result == kServes && g_wants_streams) result = kStreams;
    } catch (const std::exception& e) {
        result = fmt::format("{}{}", kFails, e.what());
    }
    tell(result);
    _exit(0);
}

// --- the parent ---------------------------------------------------------------------------------

// What the child said last, "" where it took too long. A child that ends without a result failed in
// the step it named last.
std::string ask_child(const Model& model, const Layout& layout, std::int32_t sequences) {
    int ends[2];
    if (pipe(ends) != 0) return {};
    const pid_t child = fork();
    if (child < 0) {
        close(ends[0]);
        close(ends[1]);
        return {};
    }
    if (child == 0) {
        close(ends[0]);
        g_told = ends[1];
        be_child(model, layout, sequences);
    }
    close(ends[1]);
    std::string said;
    const MonoNs until = mono_now() + kTrialLimit;
    bool late = false;
    for (char buffer[512];;) {
        const MonoNs left = until - mono_now();
        pollfd ready{.fd = ends[0], .events = POLLIN, .revents = 0};
        const int n = left <= 0 ? 0 : poll(&ready, 1, static_cast<int>(left / kNsPerMs) + 1);
        if (n < 0 && errno == EINTR) continue;
        late = n <= 0;
        const ssize_t got = late ? 0 : read(ends[0], buffer, sizeof buffer);
        if (got <= 0) break;
        said.append(buffer, static_cast<std::size_t>(got));
    }
    close(ends[0]);
    if (late) kill(child, SIGKILL);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (late) return {};
    while (said.ends_with('\n')) said.pop_back();
    std::string last = said.substr(said.rfind('\n') + 1);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return last;
    if (!last.starts_with(kFails)) return failed_at(last);
    // An assertion's text; the line before it says where.
    const std::string why = last.substr(kFails.size());
    said.resize(said.size() - std::min(said.size(), last.size() + 1));
    return fmt::format("{} ({})", failed_at(said.substr(said.rfind('\n') + 1)), why);
}

std::string read_kept(const KeptFile& kept) {
    std::ifstream in(kept.path);
    std::string key, result;
    if (kept.path.empty() || !std::getline(in, key) || key != "key " + kept.key) return {};
    return std::getline(in, result) ? result : std::string();
}

void keep(const KeptFile& kept, std::string_view result) {
    if (kept.path.empty()) return;
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(kept.path).parent_path(), ignored);
    std::ofstream(kept.path + ".new") << "key " << kept.key << '\n' << result << '\n';
    std::filesystem::rename(kept.path + ".new", kept.path, ignored);
}

}  // namespace

Result<Trial> try_model(const Model& model, const LlamaOptions& options) {
    Trial trial;
    if (!options.trial || model.on_gpu) return trial;
    Layout layout{.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / 2),
                  .flash_attention = options.flash_attention.value_or(true),
                  .kv_type = options.kv_type.empty() ? "f16" : options.kv_type,
                  .unified = options.unified.value_or(true)};
    const std::int32_t sequences = std::clamp(options.max_sequences, 1, 4);
    const KeptFile kept = kept_file(model, options,
                                    fmt::format("trial-{}{}{}{}", layout.flash_attention,
                                                layout.kv_type, layout.unified, sequences));
    constexpr std::string_view kOne = "one sequence only: ";
    std::string result = read_kept(kept);
    if (result.empty()) {
        result = ask_child(model, layout, sequences);
        if (result.starts_with(kFails) && sequences > 1) {
            layout.unified = false;
            if (ask_child(model, layout, 1) == kServes)
                result = fmt::format("{}{}", kOne, result.substr(kFails.size()));
        }
        if (!result.empty()) keep(kept, result);
    }
    if (result.empty()) {
        log_warn(kOrigin, "{}: the trial was not through in {} s: served untried", model.info.id,
                 kTrialLimit / kNsPerSec);
    } else if (result.starts_with(kOne)) {
        log_warn(kOrigin, "{}: computes one request at a time and keeps no prefixes: {}",
                 model.info.id, result.substr(kOne.size()));
        trial.one_sequence = true;
    } else if (result == kStreams) {
        log_info(kOrigin, "{}: has a stream for each sequence, as llama.cpp asks for",
                 model.info.id);
        trial.streams = true;
    } else if (result.starts_with(kFails)) {
        return fail(Code::kInvalidRequest, kOrigin,
                    fmt::format("cannot serve {}: {}", options.path, result.substr(kFails.size())));
    }
    return trial;
}

}  // namespace zerohop::engine
