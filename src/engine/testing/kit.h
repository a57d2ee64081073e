// How tests ask an engine and wait for what it says.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "request/engine_port.h"

namespace zerohop::engine::testkit {

inline std::shared_ptr<Request> ask(std::string text, std::int32_t max_tokens = 24) {
    auto request = std::make_shared<Request>();
    request->turns.push_back({Role::kUser, {std::move(text)}});
    request->max_tokens = max_tokens;
    return request;
}

struct Answer {
    std::int32_t prepared = -1;
    std::string text;
    std::optional<Done> done;
    std::optional<Error> failed;
    int texts = 0;                                // events
    MonoNs admitted_ns = 0, prefill_done_ns = 0;  // as the first of them says
};

inline Answer wait_for(Stream& stream, int seconds = 60) {
    Answer answer;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (std::chrono::steady_clock::now() < until) {
        Event event;
        if (!stream.try_pop(event)) {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
            continue;
        }
        if (auto* prepared = std::get_if<Prepared>(&event))
            answer.prepared = prepared->input_tokens;
        if (auto* text = std::get_if<Text>(&event)) {
            answer.text += text->delta;
            if (answer.texts++ == 0) {
                answer.admitted_ns = text->admitted_ns;
                answer.prefill_done_ns = text->prefill_done_ns;
            }
        }
        if (auto* done = std::get_if<Done>(&event)) return answer.done = *done, answer;
        if (auto* failed = std::get_if<Failed>(&event))
            return answer.failed = failed->error, answer;
    }
    ADD_FAILURE() << "no end within " << seconds << " s";
    return answer;
}

inline StreamPtr submit(EnginePort& engine, std::shared_ptr<Request> request) {
    auto stream = std::make_shared<Stream>(nullptr, nullptr);
    engine.submit(std::move(request), stream);
    return stream;
}

inline Answer answer_of(EnginePort& engine, std::shared_ptr<Request> request) {
    return wait_for(*submit(engine, std::move(request)));
}

inline bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 2000; ++i) {
        if (condition()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
}

}  // namespace zerohop::engine::testkit
