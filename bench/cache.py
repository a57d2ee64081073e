"""./dev bench cache: prefix cache, drafts and warm-up beside llama-server (prompt cache on), same run.

Keys and targets: docs/benchmarks.md. Prompts are new for every repetition, so "cold" is cold for both."""
import argparse
import asyncio
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from client import messages  # noqa: E402
from process import llama_server, zerohop  # noqa: E402
from serve import WORDS, Figures, Side, best_peer_flags, check, interleaved  # noqa: E402
from stats import figure, machine, percentile, report  # noqa: E402

NAMES = "Alma Boris Chen Dora Emil Fatima Goran Hana Igor Jana Kofi Lena Milan Nora Omar Petra".split()
CITIES = "Lisbon Oslo Vienna Porto Gdansk Lyon Turin Ghent Malmo Bergen Graz Bilbao".split()


def system_prompt(rng, tokens):
    return f"Company handbook {rng.randrange(10**9)}. " + " ".join(rng.choice(WORDS) for _ in range(int(tokens * 0.85)))


def question(rng):
    return "Question: what about " + " ".join(rng.choice(WORDS) for _ in range(12)) + "?"


def record(rng):
    return {"name": rng.choice(NAMES), "city": rng.choice(CITIES), "order": rng.randrange(1000, 9999),
            "amount": rng.randrange(10, 900)}


def form(values):
    return (f"name: {values['name']}; city: {values['city']}; order: {values['order']}; amount: {values['amount']} EUR; "
            "status: confirmed; next step: send the invoice to the customer within two working days and file a copy.")


def extraction_prompt(rng, template_tokens=200):
    """A template of worked examples that stays, and one order, at its end, that changes."""
    fixed = random.Random(7)
    lines = ["Write each order in the standard form."]
    for values in [record(fixed) for _ in range(max(2, template_tokens // 85))] + [record(rng)]:
        lines += [f"Order: {values['name']} from {values['city']} pays {values['amount']} EUR for order {values['order']}.",
                  f"Form: {form(values)}"]
    lines[-1] = "Form:"
    return "\n".join(lines)


def counters(side):
    stats = side.process.get_json("/readyz")["models"][0]
    return stats


async def eight_shared(side, system, rng):
    questions = [question(rng) for _ in range(8)]
    began = time.monotonic()
    answers = await asyncio.gather(*(side.ask(q, 16, system=system) for q in questions))
    for answer in answers:
        check(answer, side)
    return (statistics.median(a.ttft for a in answers), max(a.end for a in answers) - began,
            sum(a.usage.get("input_tokens", 0) + a.usage.get("cache_read_input_tokens", 0)
                + a.usage.get("cache_creation_input_tokens", 0) for a in answers))


async def shared_warm(side, rng):
    system = system_prompt(rng, 950)
    check(await side.ask(question(rng), 1, system=system), side)
    return (await eight_shared(side, system, rng))[:2]


async def shared_cold(side, rng):
    return (await eight_shared(side, system_prompt(rng, 950), rng))[:2]


async def agents(side, rng):
    """4 agents, 10 turns each, one 3,000-token system prompt behind a line that changes on every call."""
    body = "You are an agent with tools.\n" + " ".join(rng.choice(WORDS) for _ in range(2550))

    async def agent(number):
        own = random.Random(rng.randrange(10**9) + number)
        history = []
        for turn in range(10):
            history.append({"role": "user", "content": f"Agent {number} turn {turn}: " + question(own)})
            line = f"x-anthropic-billing-header: cc_version={own.randrange(10**6)}; cch={own.randrange(10**9):x};\n"
            answer = await side.ask(history[-1]["content"], 24, system=line + body, history=history[:-1])
            check(answer, side)
            history.append({"role": "assistant", "content": "".join(answer.text).strip() or "ok"})
    began = time.monotonic()
    await asyncio.gather(*(agent(i) for i in range(4)))
    return time.monotonic() - began


async def second_calls(side, rng, repeats):
    prompt = system_prompt(rng, 1000) + "\nSummarize."
    times = []
    for _ in range(repeats + 1):
        answer = await side.ask(prompt, 16)
        check(answer, side)
        times.append(answer.end - answer.start)
    return times[0], times[1:]


async def templated(side, rng, template_tokens, max_tokens, count):
    times, tokens = [], 0
    decode = 0.0
    for _ in range(count):
        answer = await side.ask(extraction_prompt(rng, template_tokens), max_tokens)
        check(answer, side)
        times.append(answer.end - answer.start)
        tokens += answer.output_tokens - 1
        decode += answer.end - answer.deltas[0]
    return statistics.median(times), tokens / decode


async def prose_rate(side, rng, count):
    tokens = decode = 0
    for _ in range(count):
        answer = await side.ask(f"Write a story about a {rng.choice(WORDS)} and a {rng.choice(WORDS)} in {rng.choice(CITIES)}.", 96,
                                temperature=1.0)
        check(answer, side)
        tokens += answer.output_tokens - 1
        decode += answer.end - answer.deltas[0]
    return tokens / decode


def warm_up(side, system):
    body = json.dumps({"model": side.model, "system": system, "messages": []}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{side.process.port}/v1/cache/warmup", body,
                                     {"content-type": "application/json", "anthropic-version": "2023-06-01"})
    with urllib.request.urlopen(request, timeout=120) as reply:
        return json.load(reply)


def compare_caches(args, out, ours, theirs):
    with ours, theirs:
        for name, once in (("shared", shared_warm), ("shared_cold", shared_cold)):
            runs = asyncio.run(interleaved(name, [ours, theirs], args.reps, args.seed, once))
            ttft = [b[0] / a[0] for a, b in zip(runs["ours"], runs["peer"])]
            wall = [b[1] / a[1] for a, b in zip(runs["ours"], runs["peer"])]
            cold = name == "shared_cold"
            out[f"{name}_ttft_ratio"] = figure(ttft, 3.5 if cold else 15)
            out[f"{name}_wall_ratio"] = figure(wall, 4 if cold else 10)
            out[f"{name}_raw_s"] = {k: [[round(x, 3) for x in r] for r in v] for k, v in runs.items()}
        computed = []
        for rep in range(args.reps):
            rng = random.Random(f"computed {args.seed} {rep}")
            system = system_prompt(rng, 950)
            before = counters(ours)["prompt_tokens_computed"]
            *_, total = asyncio.run(eight_shared(ours, system, rng))
            done = counters(ours)["prompt_tokens_computed"] - before
            one = asyncio.run(ours.ask(".", 1, system=system))
            whole = sum(one.usage.get(k, 0) for k in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"))
            shared = whole - 10  # template tail and the question's one token
            computed.append(done / (total - 7 * shared))
        out["prefix_computed"] = figure(computed, 1.05, "lower")
        jitter = {}
        speedups = []
        for side in (ours, theirs):
            cold, again = asyncio.run(second_calls(side, random.Random(args.seed), 100))
            p50, p90 = percentile(again, 0.5), percentile(again, 0.9)
            jitter[side.name] = round((p90 - p50) / p50, 3)
        for rep in range(args.reps):
            cold, again = asyncio.run(second_calls(ours, random.Random(f"second {rep}"), 3))
            speedups.append(cold / statistics.median(again))
        out["second_call_speedup"] = figure(speedups, 5.1)
        out["second_call_jitter"] = {"median": jitter["ours"], "peer": jitter["peer"], "target": 0.15, "met": jitter["ours"] <= 0.15}
        savings = []
        for rep in range(args.reps):
            rng = random.Random(f"warm {args.seed} {rep}")
            cold = asyncio.run(ours.ask(question(rng), 16, system=system_prompt(rng, 950)))
            system = system_prompt(rng, 950)
            warm_up(ours, system)
            warm = asyncio.run(ours.ask(question(rng), 16, system=system))
            savings.append(1 - (warm.end - warm.start) / (cold.end - cold.start))
        out["warmup_saving"] = figure(savings, 0.62)
        # No warm-up: one repetition takes the peer five minutes (3,000 tokens on each of 40 calls).
        runs = {"ours": [], "peer": []}
        for rep in range(args.agent_reps):
            for side in ((ours, theirs) if rep % 2 == 0 else (theirs, ours)):
                runs[side.name].append(asyncio.run(agents(side, random.Random(f"agents {args.seed} {rep}"))))
            print(f"  agents {rep + 1}/{args.agent_reps}", file=sys.stderr, flush=True)
        out["agent_ratio"] = figure([b / a for a, b in zip(runs["ours"], runs["peer"])], 2)
        out["agent_s"] = {k: round(statistics.median(v), 2) for k, v in runs.items()}


def compare_drafts(args, out, ours, without):
    with ours, without:
        structure, drafts, worst = [], [], []
        for rep in range(args.reps):
            pair = {}
            for side in (ours, without):
                rng = random.Random(f"structure {args.seed} {rep}")
                asyncio.run(templated(side, rng, 600, 64, 2))
                pair[side.name] = asyncio.run(templated(side, rng, 600, 64, 5))[0]
            structure.append(pair["without"] / pair["ours"])
            for side in (ours, without):
                pair[side.name] = asyncio.run(templated(side, random.Random(f"drafts {args.seed} {rep}"), 200, 96, 20))[1]
            drafts.append(pair["ours"] / pair["without"])
            for side in ((ours, without) if rep % 2 else (without, ours)):
                pair[side.name] = asyncio.run(prose_rate(side, random.Random(f"prose {args.seed} {rep}"), 6))
            worst.append(pair["ours"] / pair["without"])
            print(f"  drafts {rep + 1}/{args.reps}", file=sys.stderr, flush=True)
        out["structure_speedup"] = figure(structure, 4.8)
        out["draft_speedup"] = figure(drafts, 2.0)
        out["draft_worst"] = figure(worst, 0.98)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--cache", required=True)
    parser.add_argument("--bookkeeping", help="bench_mooncake with its trace: prints mooncake_lru and lookup_us as JSON", nargs="+")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--agent-reps", type=int, default=1)
    parser.add_argument("--out", help="file that keeps what is measured so far")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    out = Figures(args.out)
    out.update({"bench": "cache", "machine": machine(), "repetitions": args.reps})
    peer = best_peer_flags(args, pathlib.Path(args.cache))
    out["peer_flags"] = " ".join(peer["flags"])
    off = pathlib.Path(args.cache) / "bench-no-caches.toml"
    off.write_text("[cache]\nprefix = false\ndrafts = false\n")
    ours = Side("ours", lambda: zerohop(args.binary, f"{args.gguf}=bench"), "bench")
    without = Side("without", lambda: zerohop(args.binary, f"{args.gguf}=bench", extra=["--config", str(off)]), "bench")
    theirs = Side("peer", lambda: llama_server(args.peer, args.gguf, flags=peer["flags"]), "peer")
    compare_caches(args, out, ours, theirs)
    compare_drafts(args, out, ours, without)
    if args.bookkeeping:
        done = subprocess.run(args.bookkeeping, check=True, capture_output=True, text=True)
        out.update(json.loads(done.stdout.strip().splitlines()[-1]))
    out["machine"]["load_after"] = os.getloadavg()[0]
    report(out, args.json)


if __name__ == "__main__":
    main()
