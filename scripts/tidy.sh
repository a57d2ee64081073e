#!/usr/bin/env bash
# tidy.sh [--all | FILE…]: clang-tidy on sources that changed since the upstream branch (or since the last
# commit, where that is the same). Needs ./dev build. A file that was clean is
# not looked at again until it, a header, a flag or the rules change.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
cd "$ZEROHOP_ROOT"
database=build/tidy # one entry for each source, which unity builds have not; only configured
[[ -f build/release/CMakeCache.txt ]] || die "no build/release" "Run ./dev build first."
logged "clang-tidy: configure" build/logs/tidy-configure.log cmake -S . --preset release -B "$database" -DZEROHOP_UNITY=OFF \
    $(sed -nE 's/^((LLAMA_CPP_SOURCE|ZEROHOP_LLAMA_BUILD)_DIR):[A-Z]*=/-D\1=/p' build/release/CMakeCache.txt)

changed() {
    local base
    base=$(git merge-base HEAD origin/main 2>/dev/null || true)
    [[ -z $base || $base == "$(git rev-parse HEAD)" ]] && base=$(git rev-parse -q --verify HEAD~1 || true)
    if [[ -n $base ]]; then
        git diff --name-only --diff-filter=d "$base" -- 'src/*.cc' 'src/*.cpp'
        git ls-files --others --exclude-standard -- 'src/*.cc' 'src/*.cpp'
    else
        git ls-files -- 'src/*.cc' 'src/*.cpp'
    fi
}
case ${1:-} in
    --all) mapfile -t files < <(git ls-files -- 'src/*.cc' 'src/*.cpp') ;;
    '') mapfile -t files < <(changed | sort -u) ;;
    *) files=("$@") ;;
esac
# Fuzz targets that no build has are not in the database.
listed=()
for file in "${files[@]}"; do
    grep -qF "\"$ZEROHOP_ROOT/$file\"" "$database/compile_commands.json" && listed+=("$file")
done
((${#listed[@]} == 0)) && { say "   no changed sources"; exit 0; }

export TIDY_CACHE=$ZEROHOP_CACHE/tidy
mkdir -p "$TIDY_CACHE"
# Includes are not followed: any header's change makes everything be looked at again.
TIDY_STATE=$({ clang-tidy-19 --version; cat .clang-tidy; find src -name '*.h' -print0 | sort -z | xargs -0 cat; } | sha256sum)
export TIDY_STATE database
one() {
    local key
    key=$TIDY_CACHE/$({ echo "$TIDY_STATE $1"; cat "$1"; } | sha256sum | cut -c1-24)
    [[ -f $key ]] && return 0
    # g++'s own warning names mean nothing to clang.
    if clang-tidy-19 -p "$database" --quiet --extra-arg=-Wno-unknown-warning-option "$1" 2>"$key.err"; then
        rm -f "$key.err"
        touch "$key"
    else
        grep -vE 'warnings? (generated|treated)|^Suppressed|^Use -header' "$key.err" || true
        rm -f "$key.err"
        return 1
    fi
}
export -f one
say "   clang-tidy on ${#listed[@]} changed sources"
printf '%s\0' "${listed[@]}" | xargs -0 -n 1 -P "$JOBS" bash -c 'one "$1"' -
