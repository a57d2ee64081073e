"""./dev bench skeleton: speed, tables, renames, mutants, linear time and what the optimizer gains.

bench_skeleton (bench/skeleton.cc) measures all but two. linear_ratio counts instructions under
valgrind: each hostile input at 1 and 2 MiB, less what it takes to make the input; the worst ratio.
bench_linear (bench/linear.cc) does the same for the prompt guard, for parsing and for stop sequences.
optimize_gain counts tokens with `zerohop tokens` and the model's vocabulary (--gguf); without one it is
the gain in bytes, as optimize_gain_unit says.
The last line is one JSON object; targets and what each key means: docs/formats/skeleton.md §11."""
import argparse
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from stats import machine  # noqa: E402

TARGETS = {"us_4k_p50": ("<=", 10), "us_4k_p99": ("<=", 20), "mb_s": (">=", 400), "mb_s_mixed": (">=", 600),
           "tables_kib": ("<=", 128), "rename_hit_rate": (">=", 0.927), "must_differ_rate": (">=", 1.0),
           "linear_ratio": ("<=", 2.1), "optimize_gain": (">=", 1.25)}
MIB = 1 << 20


def instructions(bench, kind, size, dry):
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", str(bench), "--once", kind, str(size),
                              *(["--dry"] if dry else [])], capture_output=True, text=True)
    found = re.search(r"refs:\s+([\d,]+)", run.stderr)
    if not found:
        raise SystemExit(f"valgrind counted nothing for {kind}: {run.stderr[-300:]}")
    return int(found.group(1).replace(",", ""))


def linear(bench, kinds, sizes):
    by_kind = {}
    for kind in kinds:
        small, large = (instructions(bench, kind, s, False) - instructions(bench, kind, s, True) for s in sizes)
        by_kind[kind] = round(large / small, 4)
        print(f"  {kind:<12} {small / sizes[0]:8.1f} instructions a byte, ratio {large / small:.3f}", file=sys.stderr)
    return by_kind


def tokens(binary, gguf, texts):
    """How many tokens each text has. Role tags are taken out, or a text would be counted as a whole prompt."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder, f"{i:04}.txt") for i in range(len(texts))]
        for path, text in zip(paths, texts):
            path.write_text(re.sub(r"</?(system|user|assistant)>\n?", "", text))
        run = subprocess.run([str(binary), "tokens", "--model", gguf, "--json", *map(str, paths)], capture_output=True, text=True, check=True)
    counted = [call["tokens"] for call in json.loads(run.stdout)["prompts"]]
    if len(counted) != len(texts):
        raise SystemExit(f"zerohop tokens counted {len(counted)} of {len(texts)} texts")
    return counted


def gain(bench, binary, gguf):
    prefixes = subprocess.run([str(bench), "--prefixes"], capture_output=True, text=True, check=True).stdout.split("\0")[:-1]
    counted = tokens(binary, gguf, prefixes)
    gains = sorted(after / max(1, before) for before, after in zip(counted[::2], counted[1::2]))
    half = 0.98 * len(gains) ** 0.5  # the 95 % interval of the median, from order statistics
    at = lambda rank: round(gains[min(len(gains) - 1, max(0, int(rank)))], 3)
    return round(statistics.median(gains), 3), [at(len(gains) / 2 - half), at(len(gains) / 2 + half)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default="build/release/zerohop", help="bench_skeleton is looked for beside it")
    parser.add_argument("--gguf", help="whose tokenizer counts optimize_gain")
    parser.add_argument("--json", action="store_true", help="only the JSON line")
    parser.add_argument("--out", help="file to keep the figures in, too")
    parser.add_argument("--samples", "--reps", type=int, default=31)
    parser.add_argument("--only", metavar="KEY[,KEY]", type=lambda s: s.split(","), default=list(TARGETS),
                        help="these figures only; all but linear_ratio and optimize_gain come together")
    parser.add_argument("--quick", action="store_true", help="linear_ratio at 128 and 256 KiB")
    args, _ = parser.parse_known_args()
    bench = pathlib.Path(args.binary).parent / "bench_skeleton"
    if not bench.exists():
        raise SystemExit(f"{bench} is not built: ./dev build")
    if unknown := set(args.only) - set(TARGETS):
        raise SystemExit(f"no figure {', '.join(sorted(unknown))}; there are: {' '.join(TARGETS)}")
    out = {"bench": "skeleton", "machine": machine()}
    if set(args.only) - {"linear_ratio"}:  # optimize_gain in bytes is among these
        run = subprocess.run([str(bench), "--json", "--samples", str(args.samples)], capture_output=True, text=True, check=True)
        out.update(json.loads(run.stdout.splitlines()[-1]))
    if "optimize_gain" in args.only:
        if args.gguf:
            out["optimize_gain"], out["optimize_gain_ci"] = gain(bench, args.binary, args.gguf)
        else:
            out["optimize_gain"], out["optimize_gain_ci"] = out["optimize_gain_bytes"], out["optimize_gain_bytes_ci"]
        out["optimize_gain_unit"] = "tokens" if args.gguf else "bytes"
    if "linear_ratio" in args.only and shutil.which("valgrind"):
        sizes = (MIB // 8, MIB // 4) if args.quick else (MIB, 2 * MIB)
        by_kind = {}
        for program in (bench, bench.with_name("bench_linear")):
            kinds = subprocess.run([str(program), "--kinds"], capture_output=True, text=True, check=True).stdout.split()
            by_kind |= linear(program, kinds, sizes)
        worst = max(by_kind, key=by_kind.get)
        out.update(linear_ratio=by_kind[worst], linear_worst=worst, linear_by_kind=by_kind)
    elif "linear_ratio" in args.only:
        out["missing"] = {"linear_ratio": "valgrind is not installed"}
    if not args.json:
        for key in args.only:
            sign, target = TARGETS[key]
            value = out.get(key)
            met = value is not None and (value <= target if sign == "<=" else value >= target)
            print(f"{key:<18} {value!s:>10}  target {sign} {target}  {'ok' if met else 'MISSED'}")
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps(out, indent=1) + "\n")
    print(json.dumps(out))


if __name__ == "__main__":
    main()
