#!/usr/bin/env bash
# test.sh [STEP…]: what CI checks. Steps, in this order (default: all):
#   checks       formatting, include direction, headers alone, forbidden text, clang-tidy on changed files
#   unit         release build (g++), unit tests, corpus replay
#   asan         the same built by clang with ASan + UBSan
#   tsan         ThreadSanitizer: tests of the modules with threads; streams and transport of the real binary
#                with the scripted engine
#   conformance  the official SDKs against the release binary and the real model
#   zoo          tiny models of a few architectures, each answer judged (tests/zoo)
#   chaos        misbehaving clients, overload, faults (ZEROHOP_CHAOS_S: seconds per load, default 6)
# Ends with a table and "N passed, N failed"; exits non-zero when anything failed.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/build.sh"
cd "$ZEROHOP_ROOT"

ALL=(checks unit asan tsan conformance zoo chaos)
for name in "$@"; do
    [[ " ${ALL[*]} " == *" $name "* ]] || die "no step '$name'" "Steps: ${ALL[*]}"
done
wanted() { local list=${steps[*]}; [[ " $list " == *" $1 "* ]]; }
steps=("$@")
(($# == 0)) && steps=("${ALL[@]}")
results=build/results
mkdir -p "$results" build/logs
began=$SECONDS
table=()
passed=0 failed=0 skipped=0

record() { # NAME PASSED FAILED SKIPPED SECONDS
    table+=("$(printf '   %-28s %6d %6d %7d %6ds' "$@")")
    passed=$((passed + $2)) failed=$((failed + $3)) skipped=$((skipped + $4))
}
# Numbers of a JUnit file; a missing one counts as one failure.
record_junit() { # NAME FILE SECONDS
    local numbers
    numbers=$(python3 - "$2" <<'PY'
import sys, xml.etree.ElementTree as xml
try:
    total = failed = skipped = 0
    for suite in xml.parse(sys.argv[1]).getroot().iter("testsuite"):
        total += int(suite.get("tests", 0))
        failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped += int(suite.get("skipped", 0)) + int(suite.get("disabled", 0))
    print(total - failed - skipped, failed, skipped)
except (OSError, xml.ParseError):
    print("0 1 0")
PY
    )
    # shellcheck disable=SC2086
    record "$1" $numbers "$3"
}
check() { # NAME COMMAND…: passes or fails as one; output only when it fails
    local name=$1 from=$SECONDS
    shift
    if logged "$name" "build/logs/check-${name// /-}.log" "$@"; then
        record "$name" 1 0 0 $((SECONDS - from))
    else
        record "$name" 0 1 0 $((SECONDS - from))
    fi
}
build() { # PRESET TARGET…: a build that fails is one failure
    local from=$SECONDS
    if build_preset "$@"; then return 0; fi
    record "$1 build" 0 1 0 $((SECONDS - from))
    return 1
}
unit_tests() { # NAME PRESET CTEST-OPTIONS…
    local name=$1 preset=$2 from=$SECONDS file=$ZEROHOP_ROOT/$results/$1.xml
    shift 2
    rm -f "$file"
    logged "$name" "build/logs/$name.log" ctest --test-dir "build/$preset" --output-on-failure -j "$JOBS" \
        --no-tests=error --output-junit "$file" "$@" || true
    record_junit "$name" "$file" $((SECONDS - from))
}
suite() { # NAME SUITE PYTEST-OPTIONS…
    local name=$1 suite=$2 from=$SECONDS file=$results/$1.xml
    shift 2
    rm -f "$file"
    scripts/conform.sh --suite "$suite" --junitxml="$file" "$@" 2>&1 | tee "build/logs/$name.log" || true
    record_junit "$name" "$file" $((SECONDS - from))
}

step "what the tests need"
scripts/setup.sh run test
# The SDKs come over the network while llama.cpp keeps the cores busy.
prepare_pid=
if wanted conformance || wanted chaos || wanted tsan; then
    scripts/conform.sh --prepare >build/logs/prepare.log 2>&1 &
    prepare_pid=$!
fi
llama_ready || die "llama.cpp is needed for all the rest"
ZEROHOP_TEST_MODEL=$(scripts/deps.sh model)
ZEROHOP_H2SPEC=$(scripts/deps.sh h2spec)
export ZEROHOP_TEST_MODEL ZEROHOP_H2SPEC
if [[ -n $prepare_pid ]] && ! wait "$prepare_pid"; then
    tail -n 20 build/logs/prepare.log >&2
    die "the SDKs could not be installed" "Is the network up? The log: build/logs/prepare.log"
fi
ok=1
if wanted checks || wanted unit || wanted conformance || wanted zoo || wanted chaos; then
    step "release build"
    build release || ok=0
fi

if wanted checks; then
    step "checks"
    check "formatting" scripts/fmt.sh --check
    check "include direction" python3 scripts/check_includes.py
    check "forbidden text" python3 scripts/check_text.py
    check "headers compile alone" python3 scripts/check_headers.py
    check "clang-tidy" scripts/tidy.sh
fi
if wanted unit && ((ok)); then
    step "unit tests, release"
    unit_tests unit release
fi
if wanted asan; then
    step "ASan + UBSan"
    export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
    if build asan; then unit_tests asan asan; fi
fi
if wanted tsan; then
    step "ThreadSanitizer"
    export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1"
    llama_ready
    [[ -f build/tsan/build.ninja ]] || build_preset tsan help || true
    mapfile -t targets < <(targets_of tsan '(base|request|sched|auth|api|admit|engine|net|app)_test|zerohop')
    if build tsan "${targets[@]}"; then
        # libllama itself is not instrumented: LlamaEngine runs with the tiny model that its tests make, on one thread.
        ZEROHOP_TEST_MODEL='' unit_tests tsan tsan -R '^unit\.(base|request|sched|auth|api|admit|engine|net|app)$'
        ZEROHOP_FRONT_ONLY=1 ZEROHOP_BIN=$PWD/build/tsan/zerohop suite tsan-front conformance \
            -k 'test_streams or test_transport'
    fi
fi
if wanted conformance && ((ok)); then
    step "conformance"
    suite conformance conformance
fi
if wanted zoo && ((ok)); then
    step "zoo"
    check "zoo" scripts/zoo.sh few
fi
if wanted chaos && ((ok)); then
    step "chaos"
    suite chaos chaos
fi

step "result"
printf '   %-28s %6s %6s %7s %7s\n' step passed failed skipped time
printf '%s\n' "${table[@]}"
printf '   %-28s %30ds\n\n' total $((SECONDS - began))
if ((skipped > 0)); then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
((failed == 0 && passed > 0))
