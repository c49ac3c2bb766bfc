#!/usr/bin/env bash
# ssh.sh [-OPTION...] 10.0.0.N COMMAND...
#
# What mpiexec takes for ssh inside nodes.sh. As with ssh, the words are a line for a shell there, and nothing of the
# environment goes along.
set -euo pipefail
while [[ $1 == -* ]]; do
    shift
done
read -r -a pids <<<"$NODE_PIDS"
pid=${pids[${1##*.} - 1]}
shift
exec env -i HOME="${HOME:-/}" PATH="$PATH" nsenter -t "$pid" --net --uts --ipc --mount bash -c "$*"
