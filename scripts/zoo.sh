#!/usr/bin/env bash
# zoo.sh [--json] [MODEL…]: tiny random models of llama.cpp's architectures, served and judged (tests/zoo). Made and kept in
# build/zoo from the pinned source alone. Without MODEL all of them; "few" are one of each kind, for ./dev test.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/build.sh"
cd "$ZEROHOP_ROOT"

FEW=(llama qwen3 gemma3 gpt-oss deepseek2 lfm2 mamba minimax-m3 modern-bert)
options=() names=()
for word in "$@"; do
    case $word in --*) options+=("$word") ;; few) names+=("${FEW[@]}") ;; *) names+=("$word") ;; esac
done

llama_ready
dir=$ZEROHOP_ROOT/build/zoo src=$LLAMA_CPP_SOURCE_DIR lib=$ZEROHOP_LLAMA_BUILD_DIR tests=$ZEROHOP_ROOT/tests/zoo
mkdir -p "$dir/models" "$ZEROHOP_ROOT/build/logs"
python3 "$tests/archs.py" "$src/tests/test-llama-archs.cpp" "$dir/archs.inc.new" || die "llama.cpp's test of its architectures is not the one expected"
cmp -s "$dir/archs.inc.new" "$dir/archs.inc" || mv "$dir/archs.inc.new" "$dir/archs.inc"
if [[ ! -x $dir/zoo_tool || $tests/zoo_tool.cc -nt $dir/zoo_tool || $dir/archs.inc -nt $dir/zoo_tool ]]; then
    rm -rf "$dir/models" # with the marks of what was made
    mkdir "$dir/models"
    launcher=()
    command -v ccache >/dev/null && launcher=(ccache)
    # The libraries are built without OpenMP and for the CPU; the flags say what the headers must know.
    logged "zoo_tool" "$ZEROHOP_ROOT/build/logs/zoo-tool.log" bash -c '
        set -e
        dir=$1 src=$2 lib=$3 tests=$4; shift 4
        "$@" c++ -std=c++20 -O1 -DGGML_USE_CPU -I"$dir" -isystem "$src/common" -isystem "$src/src" -isystem "$src/include" \
            -isystem "$src/ggml/include" -isystem "$src/vendor" -c "$tests/zoo_tool.cc" -o "$dir/zoo_tool.o"
        c++ "$dir/zoo_tool.o" -o "$dir/zoo_tool" "$lib"/lib/libllama.a "$lib"/lib/libggml.a "$lib"/lib/libggml-cpu.a \
            "$lib"/lib/libggml-base.a -lpthread -ldl -lm' - "$dir" "$src" "$lib" "$tests" "${launcher[@]}" ||
        die "the zoo's tool did not build"
fi
# Each in a process of its own: some architectures have no model that llama.cpp would make, a few abort.
archs=("${names[@]}")
((${#archs[@]})) || mapfile -t archs < <("$dir/zoo_tool" list)
for arch in "${archs[@]}"; do
    arch=${arch%-moe}
    [[ -f $dir/models/.$arch ]] && continue
    (GGML_NO_BACKTRACE=1 timeout 120 "$dir/zoo_tool" make "$dir/models" "$arch") >/dev/null 2>&1 || true
    touch "$dir/models/.$arch"
done
exec python3 "$tests/run.py" --zerohop "${ZEROHOP_BIN:-$ZEROHOP_ROOT/build/release/zerohop}" --tool "$dir/zoo_tool" \
    --models "$dir/models" --work "$dir/work" --port "${ZEROHOP_ZOO_PORT:-18480}" "${options[@]}" "${names[@]}"
