// Trial: what the engine will ask of a model, done once on a few tokens in a child process.
//
// Some architectures assert inside llama.cpp under several sequences, or have a memory that does
// not do what is asked of it: in the server that would be the end of all connections, or a text
// that nobody can trust. So at load a forked child (it shares the weights) computes several
// sequences, lets them share a beginning, cuts, saves and restores them and ends a call early. What
// came of it is kept beside the tuner's measurements.
//
// Blocks the caller for about a second, at most kTrialLimit; a child that takes longer is ended and
// nothing is concluded. Not done with layers on a GPU, whose driver does not survive a fork.
#pragma once

#include "base/error.h"
#include "engine/llama_engine.h"
#include "engine/model.h"

namespace zerohop::engine {

struct Trial {
    bool one_sequence = false;  // several at once fail; one works
    bool streams = false;       // the model asks for a stream for each sequence
};

// kInvalidRequest, one line that says what failed, for a model that cannot be served.
Result<Trial> try_model(const Model& model, const LlamaOptions& options);

}  // namespace zerohop::engine
