#!/usr/bin/env bash
# Puts an MPICH that can join nodes over TCP into a directory, as tests over several nodes want it (nodes.sh -m).
#
#   tests/nodes/get-mpich.sh DIRECTORY
#
# Debian 12's MPICH hangs there when a run is over (pmodels/mpich#6596). This one is the package of that name on PyPI, in
# the version of requirements.txt; DIRECTORY becomes a virtual environment of Python. Does nothing if it is there.
set -euo pipefail
[ $# -eq 1 ] || { sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
library=$1/lib/libmpich.so.12
[ ! -e "$library" ] || exit 0
# What is there is emptied, so it has to be one of these.
[ ! -e "$1" ] || [ -e "$1/pyvenv.cfg" ] || { echo "$0: $1 is there and is no virtual environment of Python" >&2; exit 1; }
python3 -m venv --clear "$1"
"$1/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 20 --require-hashes --only-binary :all: \
    -r "$(dirname "$0")/requirements.txt"
# The name under which Debian's programs look for it: the binary interface is the same.
ln -s libmpi.so.12 "$library"
