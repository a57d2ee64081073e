"""What the benches share: the command line, figures that are kept as they come, and going on when one fails.

A bench is a list of groups, (keys, function); a group measures its keys together. --only measures the groups
of the keys named. What a group raises is written to "missing" under its keys, and the next one runs."""
import argparse
import json
import os
import pathlib
import signal
import sys
import traceback

from stats import machine

RESULTS = pathlib.Path(__file__).parent / "results"


def parser(doc, reps=5):
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", required=True, help="zerohop")
    p.add_argument("--peer", help="llama-server")
    p.add_argument("--gguf", help="the model")
    p.add_argument("--cache", help="folder for the peer's best flags")
    p.add_argument("--only", metavar="KEY[,KEY]", type=lambda s: s.split(","), help="measure these figures only")
    p.add_argument("--reps", type=int, default=reps)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--out", help="file to keep the figures in as they come")
    p.add_argument("--json", action="store_true", help="one JSON object as the last line, nothing else")
    return p


def say(text):
    print(f"  {text}", file=sys.stderr, flush=True)


class Figures(dict):
    """The result; kept on disk after each figure, so that an interrupted run is not lost."""

    def __init__(self, name, args):
        super().__init__(bench=name, machine=machine(), repetitions=args.reps, missing={}, failed=[])
        self.path = args.out

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.keep()

    def keep(self):
        if self.path:
            pathlib.Path(self.path).write_text(json.dumps(self, indent=1) + "\n")

    def note_failure(self, side, figure, reason):
        """A repetition that is not counted, because this side did not answer."""
        say(f"{figure}: {side} failed: {reason}")
        self["failed"].append({"side": side, "figure": figure, "reason": str(reason)[:300]})
        self.keep()


def run(out, args, groups):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    known = [key for keys, _ in groups for key in keys]
    if unknown := sorted(set(args.only or ()) - set(known)):
        raise SystemExit(f"no figure {', '.join(unknown)}; there are: {' '.join(known)}")
    for keys, measure in groups:
        if args.only and not set(args.only) & set(keys):
            continue
        try:
            measure(args, out)
        except Exception as e:  # whatever it was, the other figures can be had
            traceback.print_exc(limit=4)
            for key in keys:
                if key not in out:
                    out["missing"][key] = f"{type(e).__name__}: {e}"[:300]
            out.keep()
    out["machine"]["load_after"] = os.getloadavg()[0]
    compare(out)
    report(out, args.json)


def compare(out):
    """Beside each figure the last recorded one, and whether it got worse: it did when the whole interval lies on the
    worse side. What a run says of itself is `met`."""
    before = {}
    for path in sorted(RESULTS.glob(f"*-{out['bench']}.json")):  # the newest of each key stays
        result = json.loads(path.read_text())
        before.update({key: (value["median"], result["machine"]) for key, value in result.items()
                       if isinstance(value, dict) and "median" in value})
    for key, now in out.items():
        if isinstance(now, dict) and "ci95" in now and key in before:
            then, machine = before[key]
            low, high = now["ci95"]
            worse = now["n"] >= 3 and (high < then if now["better"] == "higher" else low > then)
            now["recorded"] = {"median": then, "date": machine["date"], "worse_now": worse}
            if machine["cpu"] != out["machine"]["cpu"]:
                now["recorded"]["cpu"] = machine["cpu"]


def report(out, as_json):
    """The figures, one a line unless `as_json`; one JSON object as the last line in any case."""
    if not as_json:
        for key, value in out.items():
            print(f"{key:24} {json.dumps(value)}")
    print(json.dumps(out))
