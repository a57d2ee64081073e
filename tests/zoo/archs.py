"""archs.py SOURCE/tests/test-llama-archs.cpp OUT.inc: what llama.cpp's own test knows of each architecture.

Takes over get_gguf_ctx() (metadata of a tiny model of an architecture) and which architectures have experts, with
numbers that give a conversation room; make_models.cc includes the result. Stops when the source is not as expected.
"""
import re
import sys
from pathlib import Path

FUNCTIONS = ('gguf_context_ptr get_gguf_ctx', 'bool moe_mandatory', 'bool moe_implemented')
CHANGES = (
    ('const uint32_t n_ctx = 256;', 'const uint32_t n_ctx = zoo::kContext;'),
    ('uint32_t n_vocab = 128;', 'uint32_t n_vocab = zoo::vocabulary_size();'),
    ('LLM_KV_ATTENTION_SLIDING_WINDOW,         n_ctx/8', 'LLM_KV_ATTENTION_SLIDING_WINDOW, zoo::kWindow'),
    # Which expert a router picks at a tie, or which cells a sparse attention, is not what is tested.
    ('LLM_KV_EXPERT_USED_COUNT,          uint32_t(1)', 'LLM_KV_EXPERT_USED_COUNT, uint32_t(2)'),
    ('LLM_KV_ATTENTION_INDEXER_TOP_K,        uint32_t(8)', 'LLM_KV_ATTENTION_INDEXER_TOP_K, uint32_t(64)'),
)


def main():
    source = Path(sys.argv[1]).read_text()
    out = ''
    for name in FUNCTIONS:
        found = re.search(rf'^static {re.escape(name)}\(.*?^}}\n', source, re.M | re.S)
        if not found:
            sys.exit(f'{sys.argv[1]}: no function {name}')
        out += found[0] + '\n'
    for old, new in CHANGES:
        if old not in out:
            sys.exit(f'{sys.argv[1]}: no {old!r}')
        out = out.replace(old, new)
    Path(sys.argv[2]).write_text(out)


if __name__ == '__main__':
    main()
