"""Medians with 95 % intervals (bootstrap over repetitions), percentiles, and the machine's description."""
import datetime
import os
import random
import statistics


def percentile(values, share):
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def median_ci(values, rounds=2000, seed=1):
    """(median, low, high): the 2.5 and 97.5 percentiles of resampled medians."""
    rng = random.Random(seed)
    medians = [statistics.median(rng.choices(values, k=len(values))) for _ in range(rounds)]
    return statistics.median(values), percentile(medians, 0.025), percentile(medians, 0.975)


def figure(values, target=None, better="higher", digits=4):
    """A JSON-ready figure. `met` is the median's alone: how far the interval reaches says how sure that is."""
    mid, low, high = median_ci(values)
    return {"median": round(mid, digits), "ci95": [round(low, digits), round(high, digits)], "n": len(values),
            **verdict(mid, target, better)}


def verdict(value, target, better="higher"):
    if target is None:
        return {"better": better}
    return {"better": better, "target": target, "met": value >= target if better == "higher" else value <= target}


def machine():
    model = "unknown"
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {"cpu": model, "cores": os.cpu_count(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "load_before": os.getloadavg()[0], "date": datetime.date.today().isoformat()}
