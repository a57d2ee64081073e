# Shared by the scripts beside it (source it). All talk goes to stderr: stdout belongs to results.

ZEROHOP_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ZEROHOP_CACHE=${ZEROHOP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/zerohop}
JOBS=${JOBS:-$(nproc)}
export ZEROHOP_ROOT ZEROHOP_CACHE
# Builds of the same code in different checkouts share ccache's results.
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$ZEROHOP_ROOT} CCACHE_NOHASHDIR=1

say() { printf '%s\n' "$*" >&2; }
note() { printf '   %s\n' "$*" >&2; }
step() { printf '\n== %s\n' "$*" >&2; }
die() {
    printf '\nerror: %s\n' "$1" >&2
    shift
    local line
    for line in "$@"; do printf '   %s\n' "$line" >&2; done
    exit 1
}

# How long work of so many seconds of one core takes here.
about_minutes() { echo "about $((($1 / JOBS + 59) / 60)) min on $JOBS cores"; }

# What the log says last that a person can use: ninja's [n/m], a percentage, or simply its last line.
last_progress() {
    tail -c 2000 "$1" 2>/dev/null | tr '\r' '\n' |
        grep -aoE '^\[[0-9]+/[0-9]+\]|^ *[0-9]+/[0-9]+ Test|^(Get:|Setting up |Unpacking |Collecting )[^ ]*.{0,30}' | tail -n 1
}

# logged LABEL LOGFILE COMMAND…: runs it with its output in LOGFILE and shows one line of progress
# (rewritten each second on a terminal, every 20 s otherwise). On failure shows the log's tail, unless
# LOGGED_QUIET is set because the caller has another way.
logged() {
    local label=$1 log=$2 began=$SECONDS pid rc=0 shown=0 elapsed
    shift 2
    mkdir -p "$(dirname "$log")"
    "$@" >"$log" 2>&1 </dev/null &
    pid=$!
    # Ctrl-C reaches the child as well (same process group); this only keeps the terminal tidy.
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.2
        elapsed=$((SECONDS - began))
        if [[ -t 2 ]]; then
            ((elapsed >= 1)) && printf '\r\033[K   %s %s %ds' "$label" "$(last_progress "$log")" "$elapsed" >&2
            sleep 0.8
        elif ((elapsed >= shown + 20)); then
            shown=$elapsed
            printf '   %s %s %ds\n' "$label" "$(last_progress "$log")" "$elapsed" >&2
        fi
    done
    wait "$pid" || rc=$?
    elapsed=$((SECONDS - began))
    [[ -t 2 ]] && printf '\r\033[K' >&2
    if ((rc != 0)); then
        [[ -n ${LOGGED_QUIET:-} ]] && return "$rc"
        printf '   %s: FAILED after %ds; the end of %s:\n' "$label" "$elapsed" "$log" >&2
        tail -n 40 "$log" | sed 's/^/   | /' >&2
        return "$rc"
    fi
    ((elapsed >= 2)) && printf '   %s: done in %ds\n' "$label" "$elapsed" >&2
    return 0
}

sha256_is() { [[ -f $1 ]] && [[ $(sha256sum "$1" | cut -d' ' -f1) == "$2" ]]; }
