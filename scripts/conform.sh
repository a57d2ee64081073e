#!/usr/bin/env bash
# conform.sh [--prepare | --suite SUITE] [filter | pytest options]: the Python test suites (conformance, chaos)
# with everything they need. ZEROHOP_BIN is the binary under test (default: build/release/zerohop).
set -euo pipefail
source "$(dirname "$0")/lib.sh"
cd "$ZEROHOP_ROOT"

prepare() {
    local file
    scripts/deps.sh venv tests/conformance/sdk/harness.txt >/dev/null
    for file in python-2 python-0; do scripts/deps.sh venv "tests/conformance/sdk/$file.txt" >/dev/null; done
    scripts/deps.sh h2spec >/dev/null
    scripts/deps.sh npm tests/conformance/sdk/package.json >/dev/null
    # Versions stand once, in tests/lib/clients.py.
    sed -n 's/^NODE_VERSIONS = //p' tests/lib/clients.py | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' |
        while read -r version; do scripts/deps.sh node "$version" >/dev/null; done
}
suite=conformance
case ${1:-} in
    --prepare) prepare; exit ;;
    --suite) suite=$2; shift 2 ;;
esac
prepare
ZEROHOP_TEST_MODEL=${ZEROHOP_TEST_MODEL:-$(scripts/deps.sh model)}
ZEROHOP_H2SPEC=${ZEROHOP_H2SPEC:-$(scripts/deps.sh h2spec)}
export ZEROHOP_TEST_MODEL ZEROHOP_H2SPEC PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
python=$(scripts/deps.sh venv tests/conformance/sdk/harness.txt)/bin/python
arguments=()
if [[ -n ${1:-} && $1 != -* ]]; then
    arguments=(-k "$1")
    shift
fi
exec "$python" -m pytest -p no:cacheprovider -q -ra --tb=short --color="$([[ -t 1 ]] && echo yes || echo no)" \
    "tests/$suite" "${arguments[@]}" "$@"
