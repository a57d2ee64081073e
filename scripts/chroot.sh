#!/usr/bin/env bash
# chroot.sh make DIR            a bare Debian 12 (root only)
# chroot.sh in DIR COMMAND…     runs in it, with its /proc and /dev; what it starts ends with it
set -euo pipefail
source "$(dirname "$0")/lib.sh"
((EUID == 0)) || die "a chroot needs root" "Run this with sudo."
command=$1 root=$2
shift 2
case $command in
    make)
        "$ZEROHOP_ROOT/scripts/setup.sh" chroot
        logged "bare Debian 12" "$ZEROHOP_ROOT/build/logs/chroot.log" mmdebstrap --variant=minbase bookworm "$root" ||
            die "mmdebstrap failed" "Is the network up?"
        cp /etc/resolv.conf "$root/etc/resolv.conf"
        # This machine's certificate authorities, where it has ones of its own.
        [[ -z ${SSL_CERT_FILE:-} ]] || install -Dm644 "$SSL_CERT_FILE" "$root/opt/ca.crt"
        ;;
    in)
        certificates=()
        [[ -f $root/opt/ca.crt ]] &&
            certificates=(SSL_CERT_FILE=/opt/ca.crt PIP_CERT=/opt/ca.crt NODE_EXTRA_CA_CERTS=/opt/ca.crt)
        exec unshare --mount --pid --fork --kill-child bash -c '
            mount -t proc proc "$1/proc"
            mount --rbind /dev "$1/dev"
            exec chroot "$@"' - "$root" env -i HOME=/root PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            LC_ALL=C.UTF-8 "${certificates[@]}" "$@"
        ;;
esac
