#!/usr/bin/env bash
# package.sh [--test]: build/zerohop_VERSION_ARCH.deb, for any CPU of this architecture: ggml's kernels for each generation
# of them lie in shared libraries, and the best is taken at start. Man pages, completions and the example
# configuration are what the program itself prints. --test: scripts/package_test.sh on it.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/build.sh"
cd "$ZEROHOP_ROOT"

scripts/setup.sh run package
source=$(llama_source)
ZEROHOP_LLAMA_BUILD_DIR=$(scripts/deps.sh llama-build "$source" -DZEROHOP_CPU_VARIANTS=ON)
export ZEROHOP_LLAMA_BUILD_DIR
build_preset package zerohop zerohop_skeleton || die "the build failed" "The whole log: build/logs/package-build.log"

stage=$ZEROHOP_ROOT/build/package/stage
rm -rf "$stage"
DESTDIR=$stage logged "install" build/logs/package-install.log cmake --install build/package --prefix /usr --strip
zerohop=$stage/usr/bin/zerohop
doc=$stage/usr/share/doc/zerohop
python3 scripts/help_docs.py "$zerohop" "$stage/usr"
install -Dm644 -t "$stage/lib/systemd/system" packaging/zerohop.service packaging/zerohop.socket
mkdir -p "$doc/examples" "$stage/etc/zerohop"
"$zerohop" config defaults >"$doc/examples/zerohop.toml"
cat LICENSE "$source/LICENSE" "$source"/licenses/* >"$doc/copyright"
rm "$doc/LICENSE"
gzip -9n "$stage"/usr/share/man/man1/*

version=$("$zerohop" --version | sed -n '1s/^zerohop //p')
architecture=$(dpkg --print-architecture)
libraries=$(dirname "$(find "$stage/usr/lib" -name 'libggml.so.?')")
find "$libraries" -type f -exec strip --strip-unneeded {} +
mapfile -t binaries < <(find "$stage/usr/bin" "$libraries" -type f)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/debian" "$stage/DEBIAN"
printf 'Source: zerohop\n\nPackage: zerohop\nArchitecture: any\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O --ignore-missing-info -l"$libraries" "${binaries[@]/#/-e}" 2>"$work/log" |
    sed -n 's/^shlibs:Depends=//p') || { cat "$work/log" >&2; die "dpkg-shlibdeps failed"; }
cat >"$stage/DEBIAN/control" <<TEXT
Package: zerohop
Version: $version
Architecture: $architecture
Maintainer: zerohop's developers <zerohop@localhost>
Installed-Size: $(du -sk --exclude=DEBIAN "$stage" | cut -f1)
Depends: $depends
Section: net
Priority: optional
Description: whole serving stack of a language model in one process
 Point the official Anthropic SDKs, or anything that speaks the Messages API, at
 it and a GGUF model on this machine answers: TLS, HTTP/1.1 and HTTP/2,
 authentication, queueing, continuous batching and inference.
TEXT
for script in postinst prerm postrm; do install -m755 "packaging/$script" "$stage/DEBIAN/$script"; done
(cd "$stage" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) >"$stage/DEBIAN/md5sums"
deb=build/zerohop_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$stage" "$deb" >&2
[[ ${1:-} == --test ]] && exec scripts/package_test.sh "$deb"
say "$deb: apt install ./$deb"
