#!/usr/bin/env bash
# first_answer.sh [--out FILE]: minutes from `./dev run` to the first answer in a bare Debian 12 of its own: nothing
# installed, nothing cached, no ccache. Needs root. Prints one JSON object as its last line, like the other benches.
set -euo pipefail
source "$(dirname "$0")/../scripts/lib.sh"
cd "$ZEROHOP_ROOT"
out=/dev/null
[[ ${1:-} == --json ]] && shift
[[ ${1:-} == --out ]] && out=$2
root=$(mktemp -d)
# unshare hears nothing but KILL, and ends what runs in it.
trap '[[ -z ${pid:-} ]] || kill -KILL "$pid" 2>/dev/null || true; wait; rm -rf --one-file-system "$root"' EXIT
scripts/chroot.sh make "$root"
mkdir "$root/zerohop" build/logs -p
git ls-files -z | xargs -0 cp --parents -t "$root/zerohop"
log=build/logs/first-answer.log
load=$(cut -d' ' -f1 /proc/loadavg)
began=$(date +%s%N)
scripts/chroot.sh in "$root" /zerohop/dev run --no-tls --listen "127.0.0.1:${ZEROHOP_TEST_PORT:-21590}" >"$log" 2>&1 &
pid=$!
until grep -q '^== serving until' "$log"; do
    kill -0 "$pid" 2>/dev/null || { tail -n 40 "$log" >&2; die "./dev run ended"; }
    sleep 0.2
done
ms=$((($(date +%s%N) - began) / 1000000))
grep -q 'no answer' "$log" && die "no answer" "The log: $log"
PYTHONPATH=bench python3 - "$ms" "$load" <<'PY' | tee "$out"
import json, sys
from stats import machine
about = {**machine(), "load_before": float(sys.argv[2])}
minutes = round(int(sys.argv[1]) / 60000, 2)
print(json.dumps({"bench": "first_answer", "machine": about, "first_answer_min": minutes}))
PY
