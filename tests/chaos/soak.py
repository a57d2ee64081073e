"""./dev soak 30m: mixed load on the real binary; reports how memory and descriptors move.

Fails when a request is lost, when memory grows steadily (the slope over the second half, in MiB per hour) or
when descriptors do. Samples are kept in build/soak.json.
"""
import asyncio
import json
import random
import statistics
import sys
import time

from chaos import swarm
from lib.server import MODEL, ROOT, Server, null_model, null_params, real_model, user

MAX_SLOPE_MIB_PER_HOUR = 24


def slope(points):
    """Least squares, units of y per second."""
    xs, ys = zip(*points)
    mx, my = statistics.fmean(xs), statistics.fmean(ys)
    spread = sum((x - mx) ** 2 for x in xs)
    return sum((x - mx) * (y - my) for x, y in points) / spread if spread else 0.0


async def worker(server, number, until, tally):
    rng = random.Random(number)
    while time.monotonic() < until:
        kind = rng.random()
        tls = rng.random() < 0.5
        if kind < 0.25:
            words = " ".join(rng.choices("river stone winter market letter engine garden".split(), k=rng.randrange(5, 300)))
            params = {"model": MODEL, "max_tokens": rng.randrange(1, 48), "messages": user(words)}
            await swarm.ask(server, params, tally, tls, timeout=300)
        elif kind < 0.8:
            await swarm.ask(server, null_params(f"tokens={rng.randrange(1, 60)} delay_ms={rng.choice([0, 1, 5])}"), tally, tls)
        else:  # goes away in the middle
            try:
                reader, writer = await swarm.connect(server, tls)
                writer.write(swarm.request_bytes(null_params("tokens=200 delay_ms=10")))
                await writer.drain()
                await asyncio.sleep(rng.random() * 0.5)
                swarm.cut(writer, rng.random() < 0.5)
            except OSError as e:
                tally.lost.append(f"connect: {e}")


async def soak(server, seconds):
    tally, samples, began = swarm.Tally(), [], time.monotonic()
    until = began + seconds
    workers = [asyncio.create_task(worker(server, i, until, tally)) for i in range(24)]
    every = max(1.0, min(10.0, seconds / 60))
    while time.monotonic() < until:
        await asyncio.sleep(every)
        at = time.monotonic() - began
        samples.append((at, server.rss_kib() / 1024, server.fds()))
        print(f"\r{at:6.0f} s  {tally.answered} answered  {tally.refused} refused  {len(tally.lost)} lost  "
              f"{samples[-1][1]:.1f} MiB  {samples[-1][2]} descriptors", end="" if sys.stdout.isatty() else "\n", flush=True)
    await asyncio.gather(*workers)
    return tally, samples


def main():
    seconds = float(sys.argv[1])
    swarm.raise_file_limit()
    with Server([real_model(), null_model()], {"limits.connections_per_address": 10_000}) as server:
        tally, samples = asyncio.run(soak(server, seconds))
        time.sleep(1)
        idle_fds = server.fds()
    half = [s for s in samples if s[0] > seconds / 2] or samples
    memory = slope([(t, m) for t, m, _ in half]) * 3600
    descriptors = slope([(t, f) for t, _, f in half]) * 3600
    result = {"seconds": seconds, "answered": tally.answered, "refused": tally.refused, "lost": len(tally.lost),
              "memory_mib": [round(samples[0][1], 1), round(samples[-1][1], 1)],
              "memory_slope_mib_per_hour": round(memory, 2), "descriptor_slope_per_hour": round(descriptors, 1),
              "descriptors_idle": idle_fds}
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build/soak.json").write_text(json.dumps({**result, "samples": samples, "lost_examples": tally.lost[:20]}))
    print("\n" + json.dumps(result))
    # A short soak cannot tell a slope from warming up: then only losses count.
    flat = seconds < 600 or memory < MAX_SLOPE_MIB_PER_HOUR
    return 0 if flat and not tally.lost else 1


if __name__ == "__main__":
    sys.exit(main())
