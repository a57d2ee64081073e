// Attention for shared KV pools on CPUs, instead of ggml's.
//
// ggml's kernel looks at every cell of the pool for every row and head, and computes a row
// differently with the batch it stands in. This one lists the cells a row sees first, computes
// heads that share K and V together, and each row alike in any batch (docs/decisions/0007).
//
// Threads: use_own_attention() before the first context is made; the kernel runs in ggml's compute
// threads. Nothing fails: what it cannot do (other types, head sizes, CPUs) ggml does.
#pragma once

namespace zerohop::engine {

// For all contexts of the process, also those that exist. True: it is in use.
bool use_own_attention(bool own);

}  // namespace zerohop::engine
