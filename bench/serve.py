"""./dev bench serve: zerohop beside llama-server, same model file, same run, A/B interleaved.

Keys and targets: docs/benchmarks.md. The peer's flags are found first, by trying flash attention x K/V
type x unified x threads with the 8-client load, and kept in the cache per model and machine."""
import argparse
import asyncio
import hashlib
import itertools
import json
import os
import pathlib
import random
import signal
import socket
import ssl
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from client import messages  # noqa: E402
from process import free_port, llama_server, zerohop  # noqa: E402
from stats import figure, machine, percentile, report  # noqa: E402

WORDS = ("river stone winter market letter engine garden signal window mountain paper bridge yellow quiet "
         "captain forest copper village thunder island pocket silver morning harbor candle orchard meadow").split()


def unrelated_prompt(rng, tokens):
    """About `tokens` tokens nobody has seen before, ending in a request for a long answer."""
    words = " ".join(rng.choice(WORDS) for _ in range(int(tokens * 0.80)))
    return f"Words {rng.randrange(10**9)}: {words}. Write a long story that uses many of these words."


class Side:
    """One server of the comparison and how to start it."""

    def __init__(self, name, start, model):
        self.name, self.start, self.model = name, start, model
        self.process = None

    def __enter__(self):
        self.process = self.start()
        return self

    def __exit__(self, *_):
        self.process.stop()
        self.process = None

    def ask(self, content, max_tokens, **kw):
        return messages(self.process.port, self.model, content, max_tokens, **kw)


async def decode_rate(side, rng):
    answer = await side.ask(unrelated_prompt(rng, 40), 160)
    check(answer, side)
    return (answer.output_tokens - 1) / (answer.deltas[-1] - answer.deltas[0])


async def eight_clients(side, rng):
    prompts = [unrelated_prompt(rng, 300) for _ in range(8)]
    began = time.monotonic()
    answers = await asyncio.gather(*(side.ask(p, 64) for p in prompts))
    for answer in answers:
        check(answer, side)
    wall = max(a.end for a in answers) - began
    return sum(a.output_tokens for a in answers) / wall, statistics.median(a.ttft for a in answers)


async def stall(side, rng):
    """P99 gap of a running stream while a 4,000-token prompt prefills, and that prefill's time."""
    started, seen = asyncio.Event(), []

    def note(answer):
        seen[:] = [answer]
        if len(answer.deltas) >= 20:
            started.set()

    running = asyncio.create_task(side.ask(unrelated_prompt(rng, 40), 1500, on_delta=note))
    waiter = asyncio.create_task(started.wait())
    done, _ = await asyncio.wait({running, waiter}, return_when=asyncio.FIRST_COMPLETED)
    if running in done:
        waiter.cancel()
        return None  # the model stopped early: another prompt
    long = await side.ask(unrelated_prompt(rng, 4000), 1)
    check(long, side)
    prefill_end = long.deltas[0] if long.deltas else long.end
    await asyncio.sleep(1)  # a gap that began in the prefill ends, then nobody waits for the rest
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    running_answer = seen[0]
    times = [t for t in running_answer.deltas if long.start - 0.5 <= t <= prefill_end + 0.5]
    gaps = [(b - a) * 1000 for a, b in zip(times, times[1:])]
    if not times or running_answer.deltas[-1] < prefill_end:
        return None  # ended before the prefill did
    return percentile(gaps, 0.99), prefill_end - long.start


def check(answer, side):
    if not answer.complete:
        raise RuntimeError(f"{side.name}: request failed: status {answer.status} {answer.error}")


async def interleaved(name, sides, reps, seed, once):
    """once(side, rng) per side and repetition, order alternating, same prompts for both."""
    results = {side.name: [] for side in sides}
    for rep in range(-1, reps):  # the first is a warm-up
        for side in (sides if rep % 2 == 0 else sides[::-1]):
            for attempt in range(5):
                value = await once(side, random.Random(f"{seed} {name} {rep} {attempt}"))
                if value is not None:
                    break
            if rep >= 0 and value is not None:
                results[side.name].append(value)
        print(f"  {name} {rep + 1}/{reps}", file=sys.stderr, flush=True)
    return results


# --- the peer's best flags ---------------------------------------------------------------------------

def peer_layouts():
    for fa, unified in itertools.product(("on", "off"), (True, False)):
        for kv in ("f16", "bf16", "q8_0") if fa == "on" else ("f16",):
            # As much KV as zerohop's default; a slot of its own must hold the 4,000-token prompt.
            yield ["-np", "8", "-c", "8192" if unified else "49152", "-fa", fa, "-ctk", kv, "-ctv", kv,
                   "--kv-unified" if unified else "--no-kv-unified"]


def best_peer_flags(args, cache):
    digest = hashlib.sha256()
    with open(args.gguf, "rb") as f:
        digest.update(f.read(1 << 20))
    digest.update(json.dumps([machine()["cpu"], os.path.getsize(args.peer)]).encode())
    kept = cache / f"peer-{digest.hexdigest()[:16]}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    best, tried = (0, None), []

    def attempt(flags):
        nonlocal best
        try:
            with Side("peer", lambda: llama_server(args.peer, args.gguf, flags=flags), "peer") as side:
                asyncio.run(decode_rate(side, random.Random(0)))
                rate, ttft = asyncio.run(eight_clients(side, random.Random(1)))
                single = asyncio.run(decode_rate(side, random.Random(2)))
        except RuntimeError as e:
            tried.append({"flags": " ".join(flags), "error": str(e)})
            return
        tried.append({"flags": " ".join(flags), "tokens_s_8": round(rate, 1), "ttft_8": round(ttft, 2),
                      "tokens_s_1": round(single, 1)})
        print(f"  peer {' '.join(flags)}: {rate:.1f} tok/s at 8, {single:.1f} at 1", file=sys.stderr, flush=True)
        best = max(best, (rate * single, flags))

    # Layouts with all cores first, then the best of them with fewer threads.
    for layout in peer_layouts():
        attempt([*layout, "-t", str(os.cpu_count())])
    if os.cpu_count() > 1:
        attempt([*best[1][:-1], str(os.cpu_count() // 2)])
    out = {"flags": best[1], "tried": tried}
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(out))
    return out


# --- ours alone --------------------------------------------------------------------------------------

async def cancel_times(side, rng, count):
    times = []
    for _ in range(count):
        await side.ask(unrelated_prompt(rng, 100), 400, cancel_after=5)
        left = time.monotonic()
        while time.monotonic() - left < 10:
            stats = await asyncio.to_thread(side.process.get_json, "/readyz")
            if all(m["running"] + m["waiting"] == 0 for m in stats["models"]):
                break
        times.append((time.monotonic() - left) * 1000)
    return times


def idle_connection_kib(args, count=2000):
    tls_port = free_port()
    with zerohop(args.binary, "null:", tls_port=tls_port) as server:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        def connect():
            return context.wrap_socket(socket.create_connection(("127.0.0.1", tls_port)))
        warm = [connect() for _ in range(20)]
        before = server.status("VmRSS")
        held = [connect() for _ in range(count)]
        time.sleep(1)
        after = server.status("VmRSS")
        for connection in warm + held:
            connection.close()
    return (after - before) / count


async def overload(side, rng, seconds, clients):
    """`clients` closed loops, ten times what the slots serve: every request gets a proper answer."""
    lost, kinds = [], {}
    until = time.monotonic() + seconds

    async def loop(i):
        own = random.Random(rng.random())
        while time.monotonic() < until:
            answer = await side.ask(unrelated_prompt(own, 60), 16, timeout=120)
            kinds[answer.status] = kinds.get(answer.status, 0) + 1
            if not answer.proper():
                lost.append((answer.status, answer.error))
            if answer.status != 200:
                await asyncio.sleep(0.05)
    await asyncio.gather(*(loop(i) for i in range(clients)))
    return len(lost), kinds, lost[:5]


# --- the run -----------------------------------------------------------------------------------------

class Figures(dict):
    """The result; kept on disk after each figure, so that an interrupted run is not lost."""

    def __init__(self, path, *args):
        super().__init__(*args)
        self.path = path

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        if self.path:
            pathlib.Path(self.path).write_text(json.dumps(self, indent=1) + "\n")


def run(args):
    cache = pathlib.Path(args.cache)
    out = Figures(args.out)
    out.update({"bench": "serve", "machine": machine(), "repetitions": args.reps})
    peer = best_peer_flags(args, cache)
    out["peer_flags"] = " ".join(peer["flags"])
    out["peer_tried"] = peer["tried"]
    model = "bench"

    def start_ours():
        return zerohop(args.binary, f"{args.gguf}={model}", log=args.log,
                       extra=["--config", args.config] if args.config else [])
    ours = Side("ours", start_ours, model)
    theirs = Side("peer", lambda: llama_server(args.peer, args.gguf, flags=peer["flags"]), "peer")
    with ours, theirs:
        pair = [ours, theirs]
        idle = {}
        # Only one side works at a time; the idle one sleeps.
        decode = asyncio.run(interleaved("decode", pair, args.reps, args.seed, decode_rate))
        out["decode_ratio_1"] = figure([a / b for a, b in zip(decode["ours"], decode["peer"])], 0.98)
        out["decode_tokens_s_1"] = {k: round(statistics.median(v), 1) for k, v in decode.items()}
        eight = asyncio.run(interleaved("eight", pair, args.reps, args.seed, eight_clients))
        out["throughput_ratio_8"] = figure([a[0] / b[0] for a, b in zip(eight["ours"], eight["peer"])], 0.98)
        out["throughput_tokens_s_8"] = {k: round(statistics.median(x[0] for x in v), 1) for k, v in eight.items()}
        out["ttft_ratio_8"] = figure([b[1] / a[1] for a, b in zip(eight["ours"], eight["peer"])], 1.25)
        out["ttft_s_8"] = {k: round(statistics.median(x[1] for x in v), 3) for k, v in eight.items()}
        idle["ours"], idle["peer"] = ours.process.status("VmHWM"), theirs.process.status("VmHWM")
        out["rss_ratio"] = {"median": round(idle["ours"] / idle["peer"], 3), "target": 1.1,
                            "met": idle["ours"] / idle["peer"] <= 1.1, "ours_kib": idle["ours"], "peer_kib": idle["peer"]}
        stalls = asyncio.run(interleaved("stall", pair, args.reps, args.seed, stall))
        out["stall_p99_ms"] = figure([s[0] for s in stalls["ours"]], 200, "lower", 1)
        out["stall_ratio"] = figure([b[0] / a[0] for a, b in zip(stalls["ours"], stalls["peer"])], 8)
        out["stall_prefill_ratio"] = figure([a[1] / b[1] for a, b in zip(stalls["ours"], stalls["peer"])], 1.3, "lower")
        out["stall_raw"] = {k: [[round(x, 3) for x in s] for s in v] for k, v in stalls.items()}
    with ours:
        times = asyncio.run(cancel_times(ours, random.Random(args.seed), 20 * args.reps))
        step_ms = 1000 / out["decode_tokens_s_1"]["ours"]
        p99 = percentile(times, 0.99)
        out["cancel_ms"] = {"p99": round(p99, 1), "median": round(statistics.median(times), 1),
                            "target": round(step_ms + 50, 1), "met": p99 <= step_ms + 50, "n": len(times)}
        lost, kinds, examples = asyncio.run(overload(ours, random.Random(args.seed), args.overload_s, 80))
        out["overload_lost"] = {"lost": lost, "target": 0, "met": lost == 0, "answers": kinds,
                                "seconds": args.overload_s, "examples": [str(e) for e in examples]}
    starts = []
    for _ in range(args.reps):
        with ours:
            starts.append(ours.process.start_s)
    out["start_s"] = figure(starts, 1.5, "lower")
    out["idle_conn_kib"] = figure([idle_connection_kib(args) for _ in range(min(3, args.reps))], 64, "lower", 1)
    out["machine"]["load_after"] = os.getloadavg()[0]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True, help="zerohop")
    parser.add_argument("--peer", required=True, help="llama-server")
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--cache", required=True, help="folder for the peer's best flags")
    parser.add_argument("--config", help="zerohop configuration to use")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--overload-s", type=float, default=60)
    parser.add_argument("--log", default="/dev/null")
    parser.add_argument("--out", help="file to keep the figures in as they come")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line, nothing after it")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    out = run(args)
    report(out, args.json)


if __name__ == "__main__":
    main()
