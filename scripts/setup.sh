#!/usr/bin/env bash
# setup.sh GROUP…: installs the Debian packages of those groups (scripts/packages.txt) that are missing.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

present() {
    case $1 in
        "cmd "*) command -v "${1#cmd }" >/dev/null ;;
        "py "*) command -v python3 >/dev/null && python3 -c "import ${1#py }" 2>/dev/null ;;
        deb) dpkg-query -W -f '${db:Status-Status}' "$2" 2>/dev/null | grep -qx installed ;;
        *) die "scripts/packages.txt: unknown test '$1' for $2" ;;
    esac
}

missing=()
while IFS='|' read -r group package test reason; do
    read -r group <<<"$group"
    read -r package <<<"$package"
    read -r test <<<"$test"
    read -r reason <<<"$reason"
    [[ $group == '' || $group == '#'* ]] && continue
    [[ " $* " == *" $group "* ]] || continue
    present "$test" "$package" && continue
    ((${#missing[@]} == 0)) && step "Debian packages that are missing here"
    printf '   %-20s %s\n' "$package" "$reason" >&2
    missing+=("$package")
done <"$ZEROHOP_ROOT/scripts/packages.txt"
((${#missing[@]} == 0)) && exit 0

command -v apt-get >/dev/null ||
    die "this machine has no apt-get" "Install the packages above (or what your system calls them) by hand, then run this again."
root=()
if ((EUID != 0)); then
    command -v sudo >/dev/null ||
        die "installing needs root, and there is no sudo" "As root: apt-get install --no-install-recommends ${missing[*]}"
    root=(sudo)
    say "   sudo may ask for your password to install them."
    sudo -v
fi
export DEBIAN_FRONTEND=noninteractive
log=$ZEROHOP_CACHE/logs/apt.log
install=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}")
# A package list that is absent or outdated shows as unknown packages or a failed install: refresh it only then.
known() { apt-cache show "${missing[@]}" >/dev/null 2>&1; }
if ! known || ! LOGGED_QUIET=1 logged "apt-get install" "$log" "${install[@]}"; then
    logged "apt-get update" "$ZEROHOP_CACHE/logs/apt-update.log" "${root[@]}" apt-get update ||
        die "apt-get update failed" "Is the network up? Then run this again."
    logged "apt-get install" "$log" "${install[@]}" ||
        die "apt-get could not install: ${missing[*]}" "The log is $log. Debian 12 has all of them; on another release some names differ."
fi
