"""./dev bench admission: what the head decision costs, the whole path beside nginx, and who waits for whom.

    head_decision_*, token_*, handoff_*
                                 admit_bench, auth_bench and engine_bench (Google Benchmark), built beside the binary if need be
    rps_null, added_p…_us        the null engine beside nginx (1 worker, TLS, h2, `return 200` of the same size),
                                 h2load against both in turn
    high_ttft_ratio … hostile_prompt_ratio   the real model, 300-token prompts, keys of several workspaces

The last line is one JSON object. Figures that cannot be had here are named in "missing", with the reason.
"""
import asyncio
import contextlib
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from client import messages  # noqa: E402
from process import Process, free_port  # noqa: E402
from runner import Figures, parser, run, say  # noqa: E402
from sides import unrelated_prompt  # noqa: E402
from stats import figure, percentile, verdict  # noqa: E402

PROMPT_TOKENS = 300


# --- nanoseconds ---------------------------------------------------------------------------------
def micro(args, out):
    folder = args.binary.parent
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
    process = Process([shutil.which("nginx") or "/usr/sbin/nginx", "-c", folder / "nginx.conf", "-p", folder], plain, "/")
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
    process = Process([args.binary, "serve", "--config", config], port, "/readyz")
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
    if not shutil.which("h2load") or not (shutil.which("nginx") or os.path.exists("/usr/sbin/nginx")):
        raise RuntimeError("h2load or nginx is not installed")
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
        raise RuntimeError("no high-priority request was answered")
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
        raise RuntimeError("nothing was answered within --window-s; make it longer")
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
    """Requests/s of a workspace with 4 in flight. One that ran over the window's edge counts by its share of time in it."""
    async with Crowd(asker(server, secrets["b"], rng), others):
        await asyncio.sleep(2)
        async with Crowd(asker(server, secrets["a"], rng), 4, awaited=True) as crowd:
            await asyncio.sleep(args.window_s)
            while len(crowd.answers) < 4:  # a crowd that came first has every slot: until they have ended
                await asyncio.sleep(0.1)
            begin = time.monotonic()
            await asyncio.sleep(3 * args.window_s)
            end = time.monotonic()
    inside = [(min(a.end, end) - max(a.start, begin)) / (a.end - a.start) for a in crowd.answers if a.complete]
    return sum(x for x in inside if x > 0) / (end - begin)


async def overloaded(server, secrets, args, rng):
    async with Crowd(asker(server, secrets["b"], rng), 10 * args.slots, awaited=True) as crowd:
        await asyncio.sleep(args.overload_s)
    lost = [a for a in crowd.answers if not a.proper()]
    return {"lost": len(lost), **verdict(len(lost), 0, "lower"), "answers": len(crowd.answers),
            "refused": sum(a.status != 200 for a in crowd.answers), "seconds": args.overload_s,
            "examples": [f"{a.status} {a.error}" for a in lost[:3]]}


@contextlib.contextmanager
def real_server(args):
    """(server, secrets of the workspaces a and b, a generator of prompts)"""
    if not args.gguf:
        raise RuntimeError("no --gguf")
    with tempfile.TemporaryDirectory(prefix="zerohop-bench-") as name:
        folder = pathlib.Path(name)
        keys = Keys(args.binary, folder)
        secrets = {w: keys.create(w) for w in "ab"}
        config = folder / "zerohop.toml"
        config.write_text(f'[auth]\nkey_file = "{keys.path}"\n[log]\nlevel = "warn"\n[[model]]\nid = "bench"\n'
                          f'path = "{args.gguf}"\nmax_sequences = {args.slots}\n')
        port = free_port()
        with Process([args.binary, "serve", "--config", config, "--listen", f"127.0.0.1:{port}", "--no-tls"], port,
                     "/readyz") as server:
            yield server, secrets, random.Random(args.seed)


def repeated(once, name, *figure_args):
    """A group of one figure: the value of `once` in each repetition."""
    def group(args, out):
        values = []
        with real_server(args) as (server, secrets, rng):
            for _ in range(args.reps):
                values.append(asyncio.run(once(server, secrets, args, rng)))
                out[name] = figure(values, *figure_args)
                say(f"{name} {values[-1]:.2f}")
    return group


def fair(args, out):
    ratios, rates = [], {64: [], 4: []}
    with real_server(args) as (server, secrets, rng):
        for rep in range(args.reps):
            for others in ((64, 4) if rep % 2 == 0 else (4, 64)):
                rates[others].append(asyncio.run(throughput_beside(server, secrets, args, rng, others)))
            if rates[4][-1] == 0:
                raise RuntimeError("nothing was answered within --window-s; make it longer")
            ratios.append(rates[64][-1] / rates[4][-1])
            say(f"fair {ratios[-1]:.3f}")
            out["fair_ratio"] = {**figure(ratios, 0.95), "requests_s": {k: round(statistics.median(v), 3) for k, v in rates.items()}}


def overload(args, out):
    with real_server(args) as (server, secrets, rng):
        out["overload_lost"] = asyncio.run(overloaded(server, secrets, args, rng))


# --- beside clients that mean harm ---------------------------------------------------------------
class Hostile:
    """bench/hostile.py, of workspace b. `counts` afterwards: how its requests ended."""

    def __init__(self, what, server, secrets):
        self.child = subprocess.Popen([sys.executable, pathlib.Path(__file__).with_name("hostile.py"), what, "--port",
                                       str(server.port), "--key", secrets["b"]], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        if self.child.stdout.readline() != "ready\n":
            raise RuntimeError("bench/hostile.py did not start")
        return self

    def __exit__(self, *_):
        line, _ = self.child.communicate()
        self.counts = json.loads(line or "{}")


async def patient_ttft(ask, limit_s):
    """Until the first token, asking again when refused; `limit_s` if there was none by then."""
    began = time.monotonic()
    while time.monotonic() - began < limit_s:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s - (time.monotonic() - began)):
                answer = await ask()
                if answer.ttft is not None:
                    return answer.start + answer.ttft - began
        await asyncio.sleep(0.2)
    return limit_s


def hostile_clients(args, out):
    """P99 time to first token of a client of another workspace: alone, and from when the hostile ones have begun to work."""
    ratios, raw, ended = [], {"alone": [], "beside": [], "worst": [], "samples": []}, []

    async def waits(ask):
        values, until = [], time.monotonic() + 2.5 * args.patience_s
        while len(values) < args.hostile_samples and time.monotonic() < until:
            values.append(await patient_ttft(ask, args.patience_s))
        return values
    for rep in range(args.hostile_reps):
        with real_server(args) as (server, secrets, rng):
            ask = asker(server, secrets["a"], rng, 8)
            asyncio.run(ttfts(ask, 5, 0))
            alone = asyncio.run(waits(ask))
            with Hostile("occupy", server, secrets) as hostile:
                time.sleep(args.hostile_settle_s)
                beside = asyncio.run(waits(ask))
        for key, value in (("alone", percentile(alone, 0.99)), ("beside", percentile(beside, 0.99)), ("worst", max(beside)),
                           ("samples", len(beside))):
            raw[key].append(round(value, 3))
        ratios.append(raw["beside"][-1] / raw["alone"][-1])
        ended.append(hostile.counts)
        say(f"hostile {ratios[-1]:.2f} {raw}")
        out["hostile_ratio"] = {**figure(ratios, 2, "lower"), "ttft_s": raw,
                                "hostile_requests_ended": ended}


async def gaps(server, secret, rng, seconds, patience_s):
    """Times between two tokens of streams, one after the other; a stream that brings none for long is left, and counts so."""
    values, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        times, began = [], time.monotonic()
        ask = asker(server, secret, rng, 400, on_delta=lambda answer: times.append(answer.deltas[-1]))
        running = asyncio.create_task(ask())
        while not running.done():
            await asyncio.wait({running}, timeout=1)
            silent = time.monotonic() - (times[-1] if times else began)
            if silent > patience_s:
                running.cancel()
                values.append(silent)
                break
        await asyncio.gather(running, return_exceptions=True)
        values += [b - a for a, b in zip(times, times[1:])]
        if not times:
            await asyncio.sleep(0.2)
    return values


def hostile_prompts(args, out):
    """Inter-token P99 of a stream: alone, and beside clients that send 32 MiB of what is costly to parse."""
    ratios, raw, ended = [], {"alone": [], "beside": [], "worst": []}, []
    with real_server(args) as (server, secrets, rng):
        asyncio.run(gaps(server, secrets["a"], rng, 2, args.patience_s))
        for rep in range(args.hostile_reps):
            alone = asyncio.run(gaps(server, secrets["a"], rng, args.window_s, args.patience_s))
            with Hostile("prompts", server, secrets) as hostile:
                beside = asyncio.run(gaps(server, secrets["a"], rng, 3 * args.window_s, args.patience_s))
            for key, value in (("alone", percentile(alone, 0.99)), ("beside", percentile(beside, 0.99)), ("worst", max(beside))):
                raw[key].append(round(1000 * value, 1))
            ratios.append(raw["beside"][-1] / raw["alone"][-1])
            ended.append(hostile.counts)
            say(f"hostile prompts {ratios[-1]:.2f} {raw}")
            out["hostile_prompt_ratio"] = {**figure(ratios, 2, "lower"), "gap_ms": raw, "hostile_requests_ended": ended}


GROUPS = [(("head_decision_p50_ns", "head_decision_p99_ns", "token_first_ns", "token_again_ns", "handoff_p50_ns",
            "handoff_asleep_p50_ns"), micro),
          (("rps_null", "added_p99_us", "added_p50_us"), whole_path),
          (("high_ttft_ratio",), repeated(high_beside_low, "high_ttft_ratio", 1.5, "lower")),
          (("low_extra_ms",), repeated(low_extra, "low_extra_ms", 100, "lower", 1)),
          (("fair_ratio",), fair),
          (("hostile_ratio",), hostile_clients),
          (("hostile_prompt_ratio",), hostile_prompts),
          (("overload_lost",), overload)]


def main():
    p = parser(__doc__)
    p.add_argument("--requests", type=int, default=8_000, help="of one h2load run")
    p.add_argument("--slots", type=int, default=8, help="sequences of the real model")
    p.add_argument("--samples", type=int, default=20, help="high-priority requests of one repetition")
    p.add_argument("--window-s", type=float, default=8)
    p.add_argument("--overload-s", type=float, default=60)
    p.add_argument("--hostile-reps", type=int, default=3)
    p.add_argument("--hostile-samples", type=int, default=100, help="requests of the normal client, alone and beside")
    p.add_argument("--hostile-settle-s", type=float, default=5, help="from the hostile clients' start to the first of them")
    p.add_argument("--patience-s", type=float, default=60, help="beside hostile clients: what brings nothing so long counts as that")
    args = p.parse_args()
    args.binary = pathlib.Path(args.binary).absolute()
    run(Figures("admission", args), args, GROUPS)


if __name__ == "__main__":
    main()
