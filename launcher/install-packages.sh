#!/usr/bin/env bash
# Installs the Debian packages that Plait needs, only those that are missing.
#
#   launcher/install-packages.sh [--list] SET
#
# SET: build   what building and running Plait takes
#      quick   build, and the text that the quickstart trains on
#      test    build, and what the tests and checks take
# --list prints the packages that are missing and installs nothing.
#
# As root, or through sudo. Says nothing and asks nothing when everything is there.
set -euo pipefail

build=(build-essential cmake ninja-build pkg-config mpich libmpich-dev libyaml-dev libjansson-dev libxxhash-dev libdnnl-dev)
quick=("${build[@]}" bible-kjv)
# libomp-dev is the OpenMP of clang; git lists the files that the checks look at; the last two are for tests over several
# nodes.
test=("${build[@]}" libgtest-dev libopenblas-dev clang libomp-dev clang-format clang-tidy git iproute2 python3-venv)

usage() {
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
}

list=0
[ "${1:-}" = --list ] && { list=1; shift; }
[ $# -eq 1 ] || usage
case $1 in
build) wanted=("${build[@]}") ;;
quick) wanted=("${quick[@]}") ;;
test) wanted=("${test[@]}") ;;
*) usage ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "$0: not a Debian system: install what corresponds to: ${wanted[*]}" >&2
    exit 2
fi

missing=()
for package in "${wanted[@]}"; do
    status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) || status=none
    [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0
if [ $list = 1 ]; then
    printf '%s\n' "${missing[@]}"
    exit 0
fi

as_root=()
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "$0: not root and no sudo: install ${missing[*]}" >&2; exit 2; }
    as_root=(sudo)
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
    # A lock held by another apt is waited for, and nothing may ask a question.
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" </dev/null >>"$log" 2>&1 ||
        { cat "$log" >&2; echo "$0: apt-get $* failed" >&2; exit 5; }
}
echo "installing ${missing[*]}"
apt update
apt install --no-install-recommends "${missing[@]}"
