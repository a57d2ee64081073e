#!/usr/bin/env bash
# fmt.sh [--check]: clang-format over all our sources; --check only says which differ.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
cd "$ZEROHOP_ROOT"
mapfile -t files < <(git ls-files --cached --others --exclude-standard -- 'src/*.h' 'src/*.cc' 'src/*.cpp' 'tests/*.cc' 'tests/*.h' |
    while read -r f; do [[ -f $f ]] && echo "$f"; done)
if [[ ${1:-} == --check ]]; then
    printf '%s\n' "${files[@]}" | xargs -P "$JOBS" -n 8 clang-format-19 --dry-run -Werror --ferror-limit=1
else
    clang-format-19 -i "${files[@]}"
fi
