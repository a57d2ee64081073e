#!/usr/bin/env bash
# package_test.sh DEB: installs it in a bare Debian 12, serves as README says, asks, on this CPU and on emulated older
# ones, and purges it again. Needs root (a chroot).
set -euo pipefail
source "$(dirname "$0")/lib.sh"
cd "$ZEROHOP_ROOT"
deb=$(realpath "${1:?which .deb?}")
scripts/setup.sh run package-test
model=$(scripts/deps.sh model)
port=${ZEROHOP_TEST_PORT:-21590}
root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root"' EXIT
scripts/chroot.sh make "$root"
cp "$deb" "$root/zerohop.deb"
cp "$model" "$root/srv/model.gguf"
cp "$(command -v qemu-x86_64-static)" "$root/usr/local/bin/qemu"
inside() { scripts/chroot.sh in "$root" "$@"; }
passed=0
check() { # NAME COMMAND…: one check; what it printed is shown when it fails
    local name=$1 out
    shift
    if out=$("$@" 2>&1); then
        say "   ok: $name${out:+ ($(tail -n 1 <<<"$out" | cut -c1-90))}"
        passed=$((passed + 1))
    else
        printf '%s\n' "$out" | tail -n 30 >&2
        die "$name: failed"
    fi
}

check "apt install" inside bash -c 'apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends /zerohop.deb'
check "every library is found" inside bash -c '! ldd /usr/bin/zerohop $(find /usr/lib -path "*/zerohop/*.so*") | grep "not found"'
check "zerohop --version" inside zerohop --version
check "the other names" inside bash -c 'for name in anthropic-tokens prompt-skeleton-optimize anthropic-skeleton-analyzer anthropic-skeleton-validator; do $name --help; done'
check "example configuration" inside zerohop config check /usr/share/doc/zerohop/examples/zerohop.toml
check "man pages and completions" inside bash -c 'test -s /usr/share/bash-completion/completions/zerohop
    for command in $(zerohop --help | sed -n "/^Subcommands:/,/^$/s/^  \([a-z]*\) .*/\1/p"); do test -s /usr/share/man/man1/zerohop-$command.1.gz; done'
serve_and_ask='
    zerohop serve --model /srv/model.gguf=small --listen 127.0.0.1:$1 --no-tls >/tmp/serve.log 2>&1 &
    server=$!
    for ((i = 0; i < 300; i++)); do
        zerohop models --url http://127.0.0.1:$1 >/dev/null 2>&1 && break
        kill -0 $server || { cat /tmp/serve.log; exit 1; }
        sleep 0.1
    done
    answer=$(zerohop ask --url http://127.0.0.1:$1 --max-tokens 16 --temperature 0 "Name the capital of France.")
    kill -TERM $server
    wait $server
    echo "$answer"
    [[ $answer == *Paris* ]]'
check "serve, ask, SIGTERM" inside bash -c "$serve_and_ask" - "$port"
for cpu in qemu64 Nehalem Haswell; do
    check "$cpu: --version" inside qemu -cpu "$cpu" /usr/bin/zerohop --version
    check "$cpu: an answer" inside qemu -cpu "$cpu" /usr/bin/zerohop ask --model /srv/model.gguf --max-tokens 4 "Hello"
done
check "purge" inside bash -c 'apt-get purge -y -q zerohop && ! find /usr /etc /lib /var/lib /var/cache -path "*zerohop*" -not -path "/var/*apt*" | grep .'
say "$passed passed, 0 failed"
