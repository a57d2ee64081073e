#!/usr/bin/env bash
# run.sh [serve options]: from nothing to a served model, with a first answer. Ctrl-C ends the server.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/build.sh"
cd "$ZEROHOP_ROOT"
RUN_CPU_S=240 # to compile ours, in one core's seconds

scripts/setup.sh run
scripts/deps.sh model >/dev/null 2>&1 & # while the compiler runs; below is waited for it, and its errors are shown
llama_ready
[[ -x build/release/zerohop ]] || say "   building zerohop ($(about_minutes "$RUN_CPU_S"))"
build_preset release zerohop || die "the build failed" "The whole log: build/logs/release-build.log"
gguf=$(scripts/deps.sh model)
zerohop=$ZEROHOP_ROOT/build/release/zerohop

url=http://127.0.0.1:8080
previous=
for argument in "$@"; do # the first --listen of the caller's is where the questions go
    [[ $previous == --listen ]] && url=http://$argument && break
    [[ $argument == --listen=* ]] && url=http://${argument#--listen=} && break
    previous=$argument
done

step "zerohop serve --model $(basename "$gguf")=smollm2-135m $*"
# A process group of its own: Ctrl-C reaches this script only, which passes it on once.
set -m
"$zerohop" serve --model "$gguf=smollm2-135m" "$@" &
pid=$!
set +m
trap 'kill -TERM "$pid" 2>/dev/null' INT TERM HUP
wait_for_server() {
    until curl -fsS -o /dev/null --max-time 2 "$url/readyz" 2>/dev/null; do
        kill -0 "$pid" 2>/dev/null || return 1
        sleep 0.1
    done
}
if ! wait_for_server; then
    wait "$pid" || rc=$?
    ((${rc:-0} == 0)) && exit 0
    die "the server did not start (exit code ${rc:-0}); its own words are above" \
        "Another process on port ${url##*:}? Try: ./dev run --listen 127.0.0.1:9090"
fi
# Another server may hold the port and have answered for ours.
kill -0 "$pid" 2>/dev/null || { wait "$pid" || true; die "the server ended; its own words are above"; }

question="Why is the sky blue? Answer in one sentence."
step "zerohop ask \"$question\""
"$zerohop" ask --url "$url" "$question" || say "   (no answer: see the lines above)"
step "serving until Ctrl-C; clients: see the server's lines above"
rc=0
while kill -0 "$pid" 2>/dev/null; do wait "$pid" && rc=0 || rc=$?; done # a signal interrupts wait
exit "$((rc > 128 ? 0 : rc))"
