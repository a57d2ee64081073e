"""The two servers of a comparison: how each is started, asked, and how both are measured in turn."""
import asyncio
import contextlib
import hashlib
import itertools
import json
import os
import pathlib
import random
import statistics

from client import messages
from process import llama_server, zerohop
from runner import say
from stats import machine

WORDS = ("river stone winter market letter engine garden signal window mountain paper bridge yellow quiet "
         "captain forest copper village thunder island pocket silver morning harbor candle orchard meadow").split()
ANSWER_S = 180  # an answer that takes longer counts as failed


def unrelated_prompt(rng, tokens):
    """About `tokens` tokens nobody has seen before, ending in a request for a long answer."""
    words = " ".join(rng.choice(WORDS) for _ in range(int(tokens * 0.80)))
    return f"Words {rng.randrange(10**9)}: {words}. Write a long story that uses many of these words."


class Side:
    """One server of the comparison and how to start it."""

    model = "bench"

    def __init__(self, name, start):
        self.name, self.start = name, start
        self.process = None

    def __enter__(self):
        self.process = self.start()
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.stop()
        self.process = None

    def revive(self):
        """Starts it again if it has ended."""
        if self.process is None or self.process.child.poll() is not None:
            self.__exit__()
            self.__enter__()

    def ask(self, content, max_tokens, **kw):
        return messages(self.process.port, self.model, content, max_tokens, timeout=ANSWER_S, **kw)


def check(answer, side):
    if not answer.complete:
        raise RuntimeError(f"{side.name}: request failed: status {answer.status} {answer.error}")


def interleaved(name, sides, reps, seed, once, out, warm_up=True):
    """[{side: once(side, rng)}] by repetition: both sides with the same prompts, in alternating order.

    Who fails a request, or dies of it, is named in out["failed"] and started again; that repetition does not
    count. Fails when none is left."""
    rows = []
    for rep in range(-1 if warm_up else 0, reps):
        row = {}
        for side in (sides if rep % 2 == 0 else sides[::-1]):
            for attempt in range(5):  # `once` gives None where the model stopped too early to measure
                try:
                    side.revive()
                    row[side.name] = asyncio.run(once(side, random.Random(f"{seed} {name} {rep} {attempt}")))
                except Exception as e:  # also an answer that is not what it should be
                    out.note_failure(side.name, name, f"{type(e).__name__}: {e}")
                    break
                if row[side.name] is not None:
                    break
        if rep >= 0 and all(row.get(side.name) is not None for side in sides):
            rows.append(row)
        say(f"{name} {rep + 1}/{reps}")
    if not rows:
        raise RuntimeError("no repetition that both sides answered; see \"failed\"")
    return rows


# --- who they are ------------------------------------------------------------------------------------

def ours(args, config="", name="ours", env=None):
    """zerohop with its defaults, and what `config` (TOML) changes."""
    extra = []
    if config:
        path = pathlib.Path(args.cache) / f"bench-{hashlib.sha256(config.encode()).hexdigest()[:12]}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(config)
        extra = ["--config", str(path)]
    return Side(name, lambda: zerohop(args.binary, f"{args.gguf}=bench", extra=extra, env=env))


@contextlib.contextmanager
def pair(args, out):
    """[ours, the peer at its best flags], both running."""
    flags = peer_flags(args, out)  # may take minutes: before anything else runs
    with ours(args) as a, peer_with(args, flags) as b:
        yield [a, b]


def peer_flags(args, out):
    found = best_peer_flags(args)
    out["peer_flags"] = " ".join(found["flags"])
    out["peer_tried"] = found["tried"]
    return list(found["flags"])


def peer_with(args, flags):
    return Side("peer", lambda: llama_server(args.peer, args.gguf, flags=flags))


def peer_layouts():
    for fa, unified in itertools.product(("on", "off"), (True, False)):
        for kv in ("f16", "bf16", "q8_0") if fa == "on" else ("f16",):
            # As much KV as zerohop's default; a slot of its own must hold the 4,000-token prompt.
            yield ["-np", "8", "-c", "8192" if unified else "49152", "-fa", fa, "-ctk", kv, "-ctv", kv,
                   "--kv-unified" if unified else "--no-kv-unified"]


def best_peer_flags(args):
    if not args.peer:
        raise RuntimeError("no --peer")
    digest = hashlib.sha256()
    with open(args.gguf, "rb") as f:
        digest.update(f.read(1 << 20))
    digest.update(json.dumps([machine()["cpu"], os.path.getsize(args.peer)]).encode())
    kept = pathlib.Path(args.cache) / f"peer-{digest.hexdigest()[:16]}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    best, tried = (0, None), []

    def attempt(flags):
        nonlocal best
        try:
            with peer_with(args, flags) as side:
                asyncio.run(decode_rate(side, random.Random(0)))
                rate, ttft = asyncio.run(eight_clients(side, random.Random(1)))
                single = asyncio.run(decode_rate(side, random.Random(2)))
        except RuntimeError as e:
            tried.append({"flags": " ".join(flags), "error": str(e)})
            return
        tried.append({"flags": " ".join(flags), "tokens_s_8": round(rate, 1), "ttft_8": round(ttft, 2),
                      "tokens_s_1": round(single, 1)})
        say(f"peer {' '.join(flags)}: {rate:.1f} tok/s at 8, {single:.1f} at 1")
        best = max(best, (rate * single, flags))

    # Layouts with all cores first, then the best of them with fewer threads.
    for layout in peer_layouts():
        attempt([*layout, "-t", str(os.cpu_count())])
    if best[1] is None:
        raise RuntimeError(f"the peer works with no flags: {tried[0]['error']}")
    if os.cpu_count() > 1:
        attempt([*best[1][:-1], str(os.cpu_count() // 2)])
    out = {"flags": best[1], "tried": tried}
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(out))
    return out


# --- the loads that choose the peer's flags, too ------------------------------------------------------

async def decode_rate(side, rng):
    answer = await side.ask(unrelated_prompt(rng, 40), 160)
    check(answer, side)
    return (answer.output_tokens - 1) / (answer.deltas[-1] - answer.deltas[0])


async def eight_clients(side, rng):
    """(output tokens/s, median time to first token) of eight unrelated 300-token prompts, 64 output tokens."""
    prompts = [unrelated_prompt(rng, 300) for _ in range(8)]
    answers = await asyncio.gather(*(side.ask(p, 64) for p in prompts))
    for answer in answers:
        check(answer, side)
    wall = max(a.end for a in answers) - min(a.start for a in answers)
    return sum(a.output_tokens for a in answers) / wall, statistics.median(a.ttft for a in answers)
