"""./dev bench serve: zerohop beside llama-server, same model file, same run, A/B interleaved.

Keys and targets: docs/benchmarks.md. The peer's flags are found first, by trying flash attention x K/V
type x unified x threads with the 8-client load, and kept in the cache per model and machine."""
import asyncio
import pathlib
import random
import socket
import ssl
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from process import free_port, zerohop  # noqa: E402
from runner import Figures, parser, run  # noqa: E402
from sides import (check, decode_rate, eight_clients, interleaved, ours, pair, peer_flags, peer_with,  # noqa: E402
                   unrelated_prompt)
from stats import figure, percentile, verdict  # noqa: E402


def medians(rows, value, digits):
    return {name: round(statistics.median(value(row[name]) for row in rows), digits) for name in rows[0]}


# --- beside the peer ---------------------------------------------------------------------------------

def decode(args, out):
    with pair(args, out) as sides:
        rows = interleaved("decode", sides, args.reps, args.seed, decode_rate, out)
    out["decode_ratio_1"] = figure([r["ours"] / r["peer"] for r in rows], 1.0)
    out["decode_tokens_s_1"] = medians(rows, float, 1)


def eight(args, out):
    with pair(args, out) as sides:
        rows = interleaved("eight", sides, args.reps, args.seed, eight_clients, out)
    out["throughput_ratio_8"] = figure([r["ours"][0] / r["peer"][0] for r in rows], 1.5)
    out["throughput_tokens_s_8"] = medians(rows, lambda v: v[0], 1)
    out["ttft_ratio_8"] = figure([r["peer"][1] / r["ours"][1] for r in rows], 2.0)
    out["ttft_s_8"] = medians(rows, lambda v: v[1], 3)


def memory(args, out):
    """Peak memory of processes that served eight clients, the peer with as many KV cells as ours has."""
    flags = peer_flags(args, out)
    with ours(args) as side:
        cells = side.process.get_json("/readyz")["models"][0]["kv_tokens_total"]
    flags[flags.index("-c") + 1] = str(cells)
    flags = ["--kv-unified" if f == "--no-kv-unified" else f for f in flags]
    kib = {"ours": [], "peer": []}
    for rep in range(min(3, args.reps)):
        for side in (ours(args), peer_with(args, flags)):
            with side:
                asyncio.run(eight_clients(side, random.Random(f"{args.seed} memory {rep}")))
                kib[side.name].append(side.process.status("VmHWM"))
    out["rss_ratio"] = {**figure([a / b for a, b in zip(kib["ours"], kib["peer"])], 1.1, "lower", 3), "kv_cells": cells,
                        "peer_flags": " ".join(flags), **{f"{name}_kib": round(statistics.median(v)) for name, v in kib.items()}}


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
        if not seen:
            check(running.result(), side)
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


def stalls(args, out):
    with pair(args, out) as sides:
        rows = interleaved("stall", sides, args.reps, args.seed, stall, out)
    out["stall_p99_ms"] = figure([r["ours"][0] for r in rows], 200, "lower", 1)
    out["stall_ratio"] = figure([r["peer"][0] / r["ours"][0] for r in rows], 8)
    out["stall_prefill_ratio"] = figure([r["ours"][1] / r["peer"][1] for r in rows], 1.3, "lower")
    out["stall_raw"] = {k: [[round(x, 3) for x in r[k]] for r in rows] for k in rows[0]}


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


def cancel(args, out):
    with ours(args) as side:
        step_ms = 1000 / asyncio.run(decode_rate(side, random.Random(args.seed)))
        times = asyncio.run(cancel_times(side, random.Random(args.seed), 20 * args.reps))
    p99 = percentile(times, 0.99)
    out["cancel_ms"] = {"p99": round(p99, 1), "median": round(statistics.median(times), 1), "n": len(times),
                        **verdict(p99, round(step_ms + 50, 1), "lower")}


async def overloaded(side, rng, seconds, clients):
    """`clients` closed loops, ten times what the slots serve: every request gets a proper answer."""
    lost, kinds = [], {}
    until = time.monotonic() + seconds

    async def loop():
        own = random.Random(rng.random())
        while time.monotonic() < until:
            answer = await side.ask(unrelated_prompt(own, 60), 16)
            kinds[answer.status] = kinds.get(answer.status, 0) + 1
            if not answer.proper():
                lost.append((answer.status, answer.error))
            if answer.status != 200:
                await asyncio.sleep(0.05)
    await asyncio.gather(*(loop() for _ in range(clients)))
    return len(lost), kinds, lost[:5]


def overload(args, out):
    with ours(args) as side:
        lost, kinds, examples = asyncio.run(overloaded(side, random.Random(args.seed), args.overload_s, 80))
    out["overload_lost"] = {"lost": lost, **verdict(lost, 0, "lower"), "answers": kinds, "seconds": args.overload_s,
                            "examples": [str(e) for e in examples]}


def starts(args, out):
    """From the command to ready: on a machine that has not seen the model (it measures layouts), and again."""
    first, second = [], []
    for _ in range(args.reps):
        with tempfile.TemporaryDirectory(prefix="zerohop-bench-") as folder:
            side = ours(args, env={"ZEROHOP_CACHE": folder})
            for times in (first, second):
                with side:
                    times.append(side.process.start_s)
            kept = any(p.is_file() for p in pathlib.Path(folder).rglob("*"))
    out["start_first_s"] = figure(first, None, "lower", 2)
    if not kept:
        raise RuntimeError("the machine was too busy for a first start to keep what it measured")
    out["start_s"] = figure(second, 1.5, "lower", 2)


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


def idle_connections(args, out):
    out["idle_conn_kib"] = figure([idle_connection_kib(args) for _ in range(min(3, args.reps))], 64, "lower", 1)


GROUPS = [(("start_first_s", "start_s"), starts),  # first: what a busy machine measures is not kept
          (("decode_ratio_1",), decode),
          (("throughput_ratio_8", "ttft_ratio_8"), eight),
          (("rss_ratio",), memory),
          (("stall_p99_ms", "stall_ratio", "stall_prefill_ratio"), stalls),
          (("cancel_ms",), cancel),
          (("overload_lost",), overload),
          (("idle_conn_kib",), idle_connections)]


def main():
    p = parser(__doc__)
    p.add_argument("--overload-s", type=float, default=60)
    args = p.parse_args()
    run(Figures("serve", args), args, GROUPS)


if __name__ == "__main__":
    main()
