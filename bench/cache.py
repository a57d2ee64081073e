"""./dev bench cache: prefix cache, drafts and warm-up beside llama-server (prompt cache on), same run.

Keys and targets: docs/benchmarks.md. Prompts are new for every repetition, so "cold" is cold for both."""
import asyncio
import json
import pathlib
import random
import statistics
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from runner import Figures, parser, run, say  # noqa: E402
from sides import WORDS, check, interleaved, ours, pair, peer_flags, peer_with  # noqa: E402
from stats import figure, percentile, verdict  # noqa: E402

CHANGING_LINE = "x-anthropic-billing-header:"
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
    return side.process.get_json("/readyz")["models"][0]


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


async def agents(side, rng, turns):
    """4 agents, one 3,000-token system prompt behind a line that changes on every call."""
    body = "You are an agent with tools.\n" + " ".join(rng.choice(WORDS) for _ in range(2550))

    async def agent(number):
        own = random.Random(rng.randrange(10**9) + number)
        history = []
        for turn in range(turns):
            history.append({"role": "user", "content": f"Agent {number} turn {turn}: " + question(own)})
            line = f"{CHANGING_LINE} cc_version={own.randrange(10**6)}; cch={own.randrange(10**9):x};\n"
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


# --- the groups --------------------------------------------------------------------------------------

def shared(args, out):
    with pair(args, out) as sides:
        for name, once, ttft, wall in (("shared", shared_warm, 15, 12), ("shared_cold", shared_cold, 3.5, 4)):
            rows = interleaved(name, sides, args.reps, args.seed, once, out)
            out[f"{name}_ttft_ratio"] = figure([r["peer"][0] / r["ours"][0] for r in rows], ttft)
            out[f"{name}_wall_ratio"] = figure([r["peer"][1] / r["ours"][1] for r in rows], wall)
            out[f"{name}_raw_s"] = {k: [[round(x, 3) for x in r[k]] for r in rows] for k in rows[0]}


def prefix_computed(args, out):
    computed = []
    with ours(args) as side:
        for rep in range(args.reps):
            rng = random.Random(f"computed {args.seed} {rep}")
            system = system_prompt(rng, 950)
            before = counters(side)["prompt_tokens_computed"]
            *_, total = asyncio.run(eight_shared(side, system, rng))
            done = counters(side)["prompt_tokens_computed"] - before
            one = asyncio.run(side.ask(".", 1, system=system))
            whole = sum(one.usage.get(k, 0) for k in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"))
            shared_tokens = whole - 10  # template tail and the question's one token
            computed.append(done / (total - 7 * shared_tokens))
    out["prefix_computed"] = figure(computed, 1.05, "lower")


def second_call(args, out):
    speedups, jitter = [], {"peer": None}

    def measure(side, repeats, name):
        return asyncio.run(second_calls(side, random.Random(name), repeats))
    with ours(args) as side:
        for rep in range(args.reps):
            cold, again = measure(side, 3, f"second {rep}")
            speedups.append(cold / statistics.median(again))
        jitter["ours"] = spread(measure(side, 100, args.seed)[1])
    try:
        with peer_with(args, peer_flags(args, out)) as side:
            jitter["peer"] = spread(measure(side, 100, args.seed)[1])
    except (RuntimeError, OSError) as e:
        out.note_failure("peer", "second_call_jitter", e)
    out["second_call_speedup"] = figure(speedups, 5.1)
    out["second_call_jitter"] = {"median": jitter["ours"], "peer": jitter["peer"], **verdict(jitter["ours"], 0.15, "lower")}


def spread(times):
    p50 = percentile(times, 0.5)
    return round((percentile(times, 0.9) - p50) / p50, 3)


def warm_up_saving(args, out):
    savings = []
    with ours(args) as side:
        for rep in range(args.reps):
            rng = random.Random(f"warm {args.seed} {rep}")
            cold = asyncio.run(side.ask(question(rng), 16, system=system_prompt(rng, 950)))
            system = system_prompt(rng, 950)
            warm_up(side, system)
            warm = asyncio.run(side.ask(question(rng), 16, system=system))
            savings.append(1 - (warm.end - warm.start) / (cold.end - cold.start))
    out["warmup_saving"] = figure(savings, 0.62)


def agent_ratios(args, out):
    """Beside the same peer runs: ours told to drop the line that changes, and ours told to keep it."""
    def once(side, rng):
        return agents(side, rng, args.agent_turns)
    config = "[cache]\ndrop_lines = {}\n".format
    dropping = ours(args, config(f'["{CHANGING_LINE}"]'))
    keeping = ours(args, config("[]"), "keeping")
    with peer_with(args, peer_flags(args, out)) as theirs, dropping, keeping:
        # No warm-up: one repetition takes the peer minutes, as it computes 3,000 tokens on each call.
        rows = interleaved("agents", [dropping, keeping, theirs], args.agent_reps, args.seed, once, out, warm_up=False)
    out["agent_ratio"] = {**figure([r["peer"] / r["ours"] for r in rows], 2), "turns": args.agent_turns}
    out["agent_ratio_keeping_lines"] = {**figure([r["peer"] / r["keeping"] for r in rows]), "turns": args.agent_turns}
    out["agent_s"] = {k: round(statistics.median(r[k] for r in rows), 2) for k in rows[0]}


def drafts(args, out):
    structure, gain, worst = [], [], []
    off = "[cache]\nprefix = false\ndrafts = false\n"
    with ours(args) as with_drafts, ours(args, off, "without") as without:
        for rep in range(args.reps):
            took = {}
            for side in (with_drafts, without):
                rng = random.Random(f"structure {args.seed} {rep}")
                asyncio.run(templated(side, rng, 600, 64, 2))
                took[side.name] = asyncio.run(templated(side, rng, 600, 64, 5))[0]
            structure.append(took["without"] / took["ours"])
            for side in (with_drafts, without):
                took[side.name] = asyncio.run(templated(side, random.Random(f"drafts {args.seed} {rep}"), 200, 96, 20))[1]
            gain.append(took["ours"] / took["without"])
            for side in ((with_drafts, without) if rep % 2 else (without, with_drafts)):
                took[side.name] = asyncio.run(prose_rate(side, random.Random(f"prose {args.seed} {rep}"), 6))
            worst.append(took["ours"] / took["without"])
            say(f"drafts {rep + 1}/{args.reps}")
    out["structure_speedup"] = figure(structure, 4.8)
    out["draft_speedup"] = figure(gain, 2.0)
    out["draft_worst"] = figure(worst, 0.98)


def bookkeeping(args, out):
    if not args.bookkeeping:
        raise RuntimeError("no --bookkeeping")
    done = subprocess.run(args.bookkeeping, check=True, capture_output=True, text=True)
    out.update(json.loads(done.stdout.strip().splitlines()[-1]))


GROUPS = [(("shared_ttft_ratio", "shared_wall_ratio", "shared_cold_ttft_ratio", "shared_cold_wall_ratio"), shared),
          (("prefix_computed",), prefix_computed),
          (("second_call_speedup", "second_call_jitter"), second_call),
          (("warmup_saving",), warm_up_saving),
          (("structure_speedup", "draft_speedup", "draft_worst"), drafts),
          (("mooncake_lru", "lookup_us"), bookkeeping),
          (("agent_ratio", "agent_ratio_keeping_lines"), agent_ratios)]


def main():
    p = parser(__doc__)
    p.add_argument("--bookkeeping", help="bench_mooncake with its trace: prints mooncake_lru and lookup_us as JSON", nargs="+")
    p.add_argument("--agent-reps", type=int, default=3)
    p.add_argument("--agent-turns", type=int, default=4, help="of each agent")
    args = p.parse_args()
    run(Figures("cache", args), args, GROUPS)


if __name__ == "__main__":
    main()
