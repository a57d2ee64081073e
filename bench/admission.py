"""./dev bench admission: what the head decision costs, the whole path beside nginx, and who waits for whom.

    head_decision_*, token_*, handoff_*
                                 admit_bench, auth_bench and engine_bench (Google Benchmark), built beside the binary if need be
    rps_null, added_p…_us        the null engine beside nginx (1 worker, TLS, h2, `return 200` of the same size),
                                 h2load against both in turn
    high_ttft_ratio … overload_lost   the real model, 300-token prompts, keys of three workspaces

The last line is one JSON object. Keys that cannot be measured here are absent and named in "missing". With --out the
figures so far are on disk at any moment, so an interrupted run is not lost. --budget-s bounds the whole: as many
repetitions of the last group as fit, `n` says how many.
"""
import argparse
import asyncio
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from client import messages  # noqa: E402
from process import Process, free_port  # noqa: E402
from serve import Figures, unrelated_prompt  # noqa: E402
from stats import figure, machine, percentile, report  # noqa: E402

PROMPT_TOKENS = 300


def say(text):
    print(f"  {text}", file=sys.stderr, flush=True)


# --- nanoseconds ---------------------------------------------------------------------------------
def micro(args, out):
    folder = pathlib.Path(args.binary).parent
    programs = ("admit_bench", "auth_bench", "engine_bench")
    if not all((folder / p).exists() for p in programs):
        say("building " + ", ".join(programs))
        subprocess.run(["cmake", "-DZEROHOP_BENCH=ON", folder], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", folder, "--target", *programs], check=True, stdout=subprocess.DEVNULL)
    values = {}
    for program, pattern in (("admit_bench", "head_decision_ns"), ("auth_bench", "token_(first|again)_ns"),
                             ("engine_bench", "handoff(_asleep)?_ns/.*")):
        run = subprocess.run([folder / program, f"--benchmark_filter=^{pattern}$", "--benchmark_format=json",
                              f"--benchmark_repetitions={args.reps}"], check=True, capture_output=True, text=True)
        for row in json.loads(run.stdout)["benchmarks"]:
            if row["run_type"] == "iteration":
                values.setdefault(row["run_name"].split("/")[0], []).append(row)
    decisions = values["head_decision_ns"]
    out["head_decision_p50_ns"] = figure([r["p50_ns"] for r in decisions], 800, "lower", 0)
    out["head_decision_p99_ns"] = figure([r["p99_ns"] for r in decisions], 5000, "lower", 0)
    out["token_first_ns"] = figure([r["cpu_time"] for r in values["token_first_ns"]], 5000, "lower", 0)
    out["token_again_ns"] = figure([r["cpu_time"] for r in values["token_again_ns"]], 300, "lower", 0)
    out["handoff_p50_ns"] = figure([r["p50_ns"] for r in values["handoff_ns"]], 1200, "lower", 0)
    out["handoff_asleep_p50_ns"] = figure([r["p50_ns"] for r in values["handoff_asleep_ns"]], None, "lower", 0)


# --- the whole path ------------------------------------------------------------------------------
class Keys:
    """A key file of its own, and its secrets by workspace."""

    def __init__(self, binary, folder):
        self.binary, self.path = binary, folder / "keys.json"

    def create(self, workspace):
        run = subprocess.run([self.binary, "key", "create", "--workspace", workspace, "--priority-max", "high", "--lanes",
                              "*", "--rpm", "100000000", "--file", self.path, "--json"], check=True, capture_output=True, text=True)
        return json.loads(run.stdout)["secret"]


def nginx(folder, size, certificate):
    port, plain = free_port(), free_port()
    answer = "x" * size
    (folder / "nginx.conf").write_text(f"""
worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log /dev/null;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi; client_body_buffer_size 64k; keepalive_requests 100000000;
  server {{ listen 127.0.0.1:{plain}; location / {{ return 200 "ok"; }} }}
  server {{
    listen 127.0.0.1:{port} ssl http2; ssl_certificate {certificate[0]}; ssl_certificate_key {certificate[1]};
    location / {{ default_type application/json; return 200 "{answer}"; }}
  }}
}}""")
    process = Process([shutil.which("nginx") or "/usr/sbin/nginx", "-c", folder / "nginx.conf", "-p", folder], plain, "/",
                      folder / "nginx.log")
    process.tls_port = port
    return process


def development_certificate(folder):
    key, certificate = folder / "key.pem", folder / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key,
                    "-out", certificate, "-days", "2", "-subj", "/CN=localhost"], check=True, capture_output=True)
    return certificate, key


def null_server(args, folder, keys, certificate):
    tls_port, port = free_port(), free_port()
    config = folder / "zerohop.toml"
    config.write_text(f"""
[server]
listen = ["127.0.0.1:{port}"]
listen_tls = ["127.0.0.1:{tls_port}"]
[tls]
certificate = "{certificate[0]}"
key = "{certificate[1]}"
[auth]
key_file = "{keys.path}"
[log]
level = "warn"
[[model]]
id = "null"
path = "null:tokens=1,slots=256,queue=1000"
""")
    process = Process([args.binary, "serve", "--config", config], port, "/readyz", folder / "zerohop.log")
    process.tls_port = tls_port
    return process


def load(port, body, headers, connections, requests, folder):
    """(requests per second, latencies in µs) of one h2load run; every answer must be a 2xx."""
    log = folder / "h2load.log"
    log.unlink(missing_ok=True)
    argv = ["h2load", "-n", str(requests), "-c", str(connections), "-m", "1", "-t", "1", "-d", body, f"--log-file={log}"]
    for name, value in headers.items():
        argv += ["-H", f"{name}: {value}"]
    run = subprocess.run([*argv, f"https://127.0.0.1:{port}/v1/messages"], check=True, capture_output=True, text=True)
    rows = [line.split() for line in log.read_text().splitlines()]
    if len(rows) != requests or any(row[1] != "200" for row in rows):
        raise RuntimeError(f"h2load: not every answer was a 200\n{run.stdout[-600:]}")
    rate = next(line for line in run.stdout.splitlines() if line.startswith("finished in")).split(",")[1].split()[0]
    return float(rate), [int(row[2]) for row in rows]


def whole_path(args, out):
    with tempfile.TemporaryDirectory(prefix="zerohop-bench-") as name:
        folder = pathlib.Path(name)
        keys, certificate = Keys(args.binary, folder), development_certificate(folder)
        secret = keys.create("bench")
        body = folder / "body.json"
        body.write_text(json.dumps({"model": "null", "max_tokens": 16, "messages": [
            {"role": "user", "content": unrelated_prompt(random.Random(args.seed), PROMPT_TOKENS)}]}))
        with null_server(args, folder, keys, certificate) as ours:
            ask = urllib.request.Request(f"http://127.0.0.1:{ours.port}/v1/auth/token", data=b"{}",
                                         headers={"x-api-key": secret})
            token = json.load(urllib.request.urlopen(ask))["access_token"]
            headers = {"authorization": f"Bearer {token}", "content-type": "application/json", "anthropic-version": "2023-06-01",
                       "x-anthropic-early-hint": "model=null;region=local", "x-anthropic-rate-hint": "tokens=16;priority=normal"}
            probe = urllib.request.Request(f"http://127.0.0.1:{ours.port}/v1/messages", data=body.read_bytes(), headers=headers)
            size = len(urllib.request.urlopen(probe).read())
            with nginx(folder, size, certificate) as theirs:
                ratios, rates, added, added_p50 = [], [], [], []
                for rep in range(args.reps):
                    order = [("ours", ours), ("nginx", theirs)]
                    rate, p50, p99 = {}, {}, {}
                    for side, server in order if rep % 2 == 0 else reversed(order):
                        rate[side], _ = load(server.tls_port, body, headers, 64, args.requests, folder)
                        _, times = load(server.tls_port, body, headers, 1, args.requests, folder)
                        p50[side], p99[side] = percentile(times, 0.5), percentile(times, 0.99)
                    ratios.append(rate["ours"] / rate["nginx"])
                    added.append(p99["ours"] - p99["nginx"])
                    added_p50.append(p50["ours"] - p50["nginx"])
                    rates.append(rate)
                    say(f"rps {rate}, p50 µs {p50}, p99 µs {p99}")
                    out["rps_null"] = {**figure(ratios, 0.5), "ours_rps": round(statistics.median(r["ours"] for r in rates)),
                                       "nginx_rps": round(statistics.median(r["nginx"] for r in rates)), "answer_bytes": size}
                    out["added_p99_us"] = figure(added, 50, "lower", 0)
                    out["added_p50_us"] = figure(added_p50, None, "lower", 0)


# --- who waits for whom --------------------------------------------------------------------------
class Crowd:
    """Clients of one key that keep `n` requests in flight. At the end the last ones are cancelled, or awaited."""

    def __init__(self, ask, n, awaited=False):
        self.ask, self.n, self.awaited, self.answers, self.stopped = ask, n, awaited, [], False

    async def _one(self):
        while not self.stopped:
            answer = await self.ask()
            self.answers.append(answer)
            if answer.status != 200:
                await asyncio.sleep(0.2)

    async def __aenter__(self):
        self.tasks = [asyncio.create_task(self._one()) for _ in range(self.n)]
        return self

    async def __aexit__(self, *_):
        self.stopped = True
        if not self.awaited:
            for task in self.tasks:
                task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=not self.awaited)


def asker(server, secret, rng, max_tokens=32, hint=None, on_delta=None):
    headers = [("x-api-key", secret)] + ([("x-anthropic-rate-hint", hint)] if hint else [])
    return lambda: messages(server.port, "bench", unrelated_prompt(rng, PROMPT_TOKENS), max_tokens, headers=headers,
                            on_delta=on_delta)


async def ttfts(ask, n, gap_s, limit_s=20):
    """Times to first token, one request after the other; fewer than `n` (but five) where they take too long."""
    values, until = [], time.monotonic() + limit_s
    for i in range(n):
        if i >= 5 and time.monotonic() > until:
            break
        answer = await ask()
        if answer.status == 200 and answer.ttft is not None:
            values.append(answer.ttft)
        await asyncio.sleep(gap_s)
    if not values:
        raise SystemExit("high_ttft_ratio: no high-priority request was answered")
    return values


async def high_beside_low(server, secrets, args, rng):
    high = asker(server, secrets["a"], rng, 8, "tokens=8;priority=high")
    alone = percentile(await ttfts(high, args.samples, 0.05), 0.99)
    async with Crowd(asker(server, secrets["b"], rng, 32, "tokens=32;priority=low"), 4 * args.slots):
        await asyncio.sleep(2)
        beside = percentile(await ttfts(high, args.samples, 0.05), 0.99)
    return beside / alone


async def low_extra(server, secrets, args, rng):
    """Poisson arrivals at 80 % of what the server just managed; low and normal in turn, of one key."""
    async with Crowd(asker(server, secrets["a"], rng, 16), args.slots) as crowd:
        await asyncio.sleep(args.window_s)
    if not crowd.answers:
        raise SystemExit("low_extra_ms: nothing was answered within --window-s; make it longer")
    rate = 0.8 * len(crowd.answers) / args.window_s
    times = {"low": [], "normal": []}

    async def one(kind):
        answer = await asker(server, secrets["a"], rng, 16, f"tokens=16;priority={kind}")()
        if answer.ttft is not None:
            times[kind].append(answer.ttft)
    tasks, until = [], time.monotonic() + 2 * args.window_s
    while time.monotonic() < until:
        tasks.append(asyncio.create_task(one(("low", "normal")[len(tasks) % 2])))
        await asyncio.sleep(rng.expovariate(rate))
    await asyncio.gather(*tasks)
    return 1000 * (percentile(times["low"], 0.99) - percentile(times["normal"], 0.99))


async def throughput_beside(server, secrets, args, rng, others):
    async with Crowd(asker(server, secrets["b"], rng), others):
        await asyncio.sleep(2)
        pieces = []
        async with Crowd(asker(server, secrets["a"], rng, on_delta=pieces.append), 4):
            await asyncio.sleep(args.window_s / 2)  # a crowd that came first has every slot: until they have ended
            before = len(pieces)
            await asyncio.sleep(2 * args.window_s)  # a request takes seconds: few would end in a short window
            return (len(pieces) - before) / (2 * args.window_s)


async def overload(server, secrets, args, rng):
    async with Crowd(asker(server, secrets["b"], rng), 10 * args.slots, awaited=True) as crowd:
        await asyncio.sleep(args.overload_s)
    lost = [a for a in crowd.answers if not a.proper()]
    return {"lost": len(lost), "target": 0, "met": not lost, "answers": len(crowd.answers),
            "refused": sum(a.status != 200 for a in crowd.answers), "seconds": args.overload_s,
            "examples": [f"{a.status} {a.error}" for a in lost[:3]]}


def waiting(args, out):
    with tempfile.TemporaryDirectory(prefix="zerohop-bench-") as name:
        folder = pathlib.Path(name)
        keys, rng = Keys(args.binary, folder), random.Random(args.seed)
        secrets = {w: keys.create(w) for w in "ab"}
        config = folder / "zerohop.toml"
        config.write_text(f'[auth]\nkey_file = "{keys.path}"\n[log]\nlevel = "warn"\n[[model]]\nid = "bench"\n'
                          f'path = "{args.gguf}"\nmax_sequences = {args.slots}\n')
        port = free_port()
        with Process([args.binary, "serve", "--config", config, "--listen", f"127.0.0.1:{port}", "--no-tls"], port, "/readyz",
                     folder / "zerohop.log") as server:
            ratios, extra, fair = [], [], []
            longest = 0
            for rep in range(args.reps):
                began = time.monotonic()
                if rep > 0 and began + longest + args.overload_s + 10 > args.until:
                    say(f"{rep} repetitions: --budget-s leaves no time for more")
                    break
                ratios.append(asyncio.run(high_beside_low(server, secrets, args, rng)))
                out["high_ttft_ratio"] = figure(ratios, 1.5, "lower")
                say(f"high/unloaded {ratios[-1]:.2f}")
                extra.append(asyncio.run(low_extra(server, secrets, args, rng)))
                out["low_extra_ms"] = figure(extra, 100, "lower", 1)
                say(f"low extra {extra[-1]:.0f} ms")
                many, few = ((64, 4) if rep % 2 == 0 else (4, 64))
                got = {n: asyncio.run(throughput_beside(server, secrets, args, rng, n)) for n in (many, few)}
                if got[4] == 0:
                    raise SystemExit("fair_ratio: nothing was answered within --window-s; make it longer")
                fair.append(got[64] / got[4])
                say(f"fair {fair[-1]:.2f}")
                longest = max(longest, time.monotonic() - began)
                out["fair_ratio"] = figure(fair, 0.9)
            out["overload_lost"] = asyncio.run(overload(server, secrets, args, rng))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="zerohop; admit_bench and auth_bench are looked for beside it")
    parser.add_argument("--gguf", help="without it only the first two groups are measured")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=8_000, help="of one h2load run")
    parser.add_argument("--slots", type=int, default=8, help="sequences of the real model")
    parser.add_argument("--samples", type=int, default=20, help="high-priority requests of one repetition")
    parser.add_argument("--window-s", type=float, default=8)
    parser.add_argument("--overload-s", type=float, default=60)
    parser.add_argument("--budget-s", type=float, default=780, help="for everything")
    parser.add_argument("--out", help="file to keep the figures in as they come")
    parser.add_argument("--micro", action=argparse.BooleanOptionalAction, default=True, help="the nanosecond figures")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line, nothing else")
    args, _ = parser.parse_known_args()
    args.binary = os.path.abspath(args.binary)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    args.until = time.monotonic() + args.budget_s
    out = Figures(args.out)
    out.update({"bench": "admission", "machine": machine(), "missing": []})
    if args.micro:
        micro(args, out)
    else:
        out["missing"].append("head_decision_*, token_*, handoff_*: --no-micro")
    if shutil.which("h2load") and (shutil.which("nginx") or os.path.exists("/usr/sbin/nginx")):
        whole_path(args, out)
    else:
        out["missing"].append("rps_null, added_p99_us: h2load or nginx is not installed")
    if args.gguf:
        waiting(args, out)
    else:
        out["missing"].append("high_ttft_ratio, low_extra_ms, fair_ratio, overload_lost: no --gguf")
    report(out, args.json)


if __name__ == "__main__":
    main()
