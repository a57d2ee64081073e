"""Memory of the real engine follows use: what long prompts took goes back once nobody works."""
import concurrent.futures
import os
import random
import time

import pytest

from lib import wire
from lib.server import MODEL, Server, real_model, user

WORDS = "river stone winter market letter engine garden signal window paper bridge quiet".split()
HOST_MB = 20  # saved prefixes stay: they are wanted


def ask(server, tokens, seed):
    text = " ".join(random.Random(seed).choices(WORDS, k=tokens))
    answer = wire.post(server, {"model": MODEL, "max_tokens": 4, "messages": user(text)}, timeout=300)
    assert answer.status == 200, answer.body


def settled(server, at_most_kib, within=60):
    """RSS once it is no more than that; what it is after so many seconds otherwise."""
    until = time.monotonic() + within
    while (rss := server.rss_kib()) > at_most_kib and time.monotonic() < until:
        time.sleep(0.5)
    return rss


@pytest.mark.skipif(os.environ.get("ZEROHOP_FRONT_ONLY") == "1", reason="needs the real model")
def test_memory_returns_after_long_prompts():
    with Server([real_model(kv_tokens=16384)], {"cache.host_mb": HOST_MB}, tls=False) as own:
        ask(own, 60, 0)  # weights and what every step needs
        start = own.rss_kib()
        assert start < 300 * 1024  # 368 MiB of KV are planned beside 92 of weights: untouched
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda seed: ask(own, 600, seed), range(1, 5)))
        peak, bound = own.rss_kib(), start + (HOST_MB + 16) * 1024
        after = settled(own, bound)
        print(f"RSS after a short prompt, long ones, without work: {start}, {peak}, {after} KiB")
        assert peak > bound  # or nothing was to give back
        assert after <= bound
        ask(own, 600, 4)
