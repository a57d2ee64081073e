#!/usr/bin/env bash
# fuzz.sh SECONDS: builds the fuzz targets and runs each for an equal share of the time. New inputs are kept in
# the cache and used next time; what crashes is in build/fuzz-findings/, with how to run it again.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/build.sh"
cd "$ZEROHOP_ROOT"

llama_ready
[[ -f build/fuzz/build.ninja ]] || build_preset fuzz help
mapfile -t targets < <(targets_of fuzz 'fuzz_[a-z0-9_]+')
((${#targets[@]} > 0)) || die "there are no fuzz targets" "A target is a file src/<module>/NAME_fuzz.cc."
build_preset fuzz "${targets[@]}" || die "the fuzz targets did not build"
share=$(($1 * JOBS / ${#targets[@]}))
((share >= 1)) || die "$1 s are too short for ${#targets[@]} targets"
step "${#targets[@]} targets, $share s each, $JOBS at a time"
mkdir -p build/fuzz-findings build/logs
one() {
    local name=${1#fuzz_} corpus=$ZEROHOP_CACHE/fuzz/${1#fuzz_} log=build/logs/$1.log
    mkdir -p "$corpus" "tests/corpus/$name"
    if "build/fuzz/$1" -max_total_time="$2" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="build/fuzz-findings/$name-" "$corpus" "tests/corpus/$name" >"$log" 2>&1; then
        printf '   %-24s ok      %12s runs, coverage %s\n' "$1" \
            "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" "$(grep -oE 'cov: [0-9]+' "$log" | tail -n 1 | cut -d' ' -f2)"
    else
        printf '   %-24s FAILED  see %s; again: build/fuzz/%s build/fuzz-findings/%s-…\n' "$1" "$log" "$1" "$name"
        tail -n 15 "$log" | sed 's/^/   | /'
        return 1
    fi
}
export -f one
rc=0
printf '%s\0' "${targets[@]}" | xargs -0 -n 1 -P "$JOBS" bash -c 'one "$1" "$0"' "$share" || rc=1
((rc == 0)) && say "no findings"
exit "$rc"
