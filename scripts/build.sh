# Configures and builds presets (source it after lib.sh).

llama_source() {
    if [[ -n ${LLAMA_CPP_SOURCE_DIR:-} ]]; then echo "$LLAMA_CPP_SOURCE_DIR"; else "$ZEROHOP_ROOT/scripts/deps.sh" llama-source; fi
}

# Sets and exports LLAMA_CPP_SOURCE_DIR and ZEROHOP_LLAMA_BUILD_DIR, building what is missing.
llama_ready() {
    LLAMA_CPP_SOURCE_DIR=$(llama_source)
    export LLAMA_CPP_SOURCE_DIR
    if [[ -z ${ZEROHOP_LLAMA_BUILD_DIR:-} ]]; then
        # shellcheck disable=SC2086
        ZEROHOP_LLAMA_BUILD_DIR=$("$ZEROHOP_ROOT/scripts/deps.sh" llama-build "$LLAMA_CPP_SOURCE_DIR" ${ZEROHOP_LLAMA_OPTIONS:-})
        export ZEROHOP_LLAMA_BUILD_DIR
    fi
}

# build_preset PRESET [TARGET…]: all of it without targets.
build_preset() {
    local preset=$1 dir=$ZEROHOP_ROOT/build/$1 logs=$ZEROHOP_ROOT/build/logs
    shift
    llama_ready
    # Configure when new or when llama.cpp lives elsewhere now; ninja itself notices the rest.
    if [[ ! -f $dir/build.ninja ]] ||
        ! grep -qx "ZEROHOP_LLAMA_BUILD_DIR:[A-Z]*=$ZEROHOP_LLAMA_BUILD_DIR" "$dir/CMakeCache.txt" ||
        ! grep -qx "LLAMA_CPP_SOURCE_DIR:[A-Z]*=$LLAMA_CPP_SOURCE_DIR" "$dir/CMakeCache.txt"; then
        logged "$preset: configure" "$logs/$preset-configure.log" cmake -S "$ZEROHOP_ROOT" --preset "$preset" \
            -DLLAMA_CPP_SOURCE_DIR="$LLAMA_CPP_SOURCE_DIR" -DZEROHOP_LLAMA_BUILD_DIR="$ZEROHOP_LLAMA_BUILD_DIR" ||
            die "cmake could not configure $preset" "A missing package? ./dev setup installs them all."
    fi
    logged "$preset: build" "$logs/$preset-build.log" cmake --build "$dir" -j "$JOBS" -- "$@" ||
        return 1
}

# Targets of a configured preset whose names match an extended regular expression.
targets_of() { # PRESET REGEX
    ninja -C "$ZEROHOP_ROOT/build/$1" -t targets all | sed -n 's/^\([A-Za-z0-9_]*\): phony$/\1/p' | grep -xE "$2" || true
}
