#!/usr/bin/env bash
# Runs an MPI program over several nodes, all of them on this machine.
#
#   tests/nodes/nodes.sh [-n NODES] [-p RANKS_PER_NODE] [-m MPICH] COMMAND...
#
# -n  nodes, 2 unless said        -p  ranks on each, 2 unless said
# -m  a directory that get-mpich.sh made: its mpiexec, and its library instead of the one that COMMAND was built with;
#     without it MPIEXEC, or the mpiexec in PATH
#
# A node is a network namespace with an own host name, System V IPC and /dev/shm: its ranks share memory with each other
# and reach those of other nodes only by TCP over a bridge. Files are everybody's.
#
# All of it lives in one namespace of processes and one of networks that belong to this call: no name or address can
# meet those of the machine or of a second call, and when this process ends, even by SIGKILL, the kernel ends and removes
# everything. It ends with the process that started it.
#
# The last lines of standard error say how many bytes each node sent. Ends with mpiexec's code; 99 if processes of the
# job are still there two seconds after mpiexec has ended; 77 if this machine cannot do it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# What cannot be done here is said, and CTest counts code 77 as skipped.
skip() {
    echo "nodes.sh: skipped: $*" >&2
    exit 77
}

# ---- inside, as process 1 of the namespace ----

pids=() # of the process that holds a node's namespaces

make_network() {
    ip link set lo up || skip "networks cannot be set up here"
    ip link add nodes type bridge || skip "the kernel makes no bridge here"
    ip addr add 10.0.0.254/24 dev nodes
    ip link set nodes up
}

make_node() {
    local i=$1 ready said=''
    exec {ready}< <(exec unshare --net --uts --ipc --mount bash -ec '
        hostname "$1"
        mount -t tmpfs tmpfs /dev/shm
        ip link set lo up
        echo ready
        exec sleep infinity' - "node$i" </dev/null)
    pids+=($!)
    read -r -u "$ready" said || true
    exec {ready}<&-
    [ "$said" = ready ] || skip "no node could be made"
    ip link add "node$i" type veth peer name eth0 netns "${pids[-1]}" ||
        skip "the kernel makes no pair of network devices here"
    ip link set "node$i" master nodes up
    nsenter -t "${pids[-1]}" --net ip addr add "10.0.0.$i/24" dev eth0
    nsenter -t "${pids[-1]}" --net ip link set eth0 up
}

# Sets `strays` to the programs that run beside this script and the nodes. Starts no process itself.
find_strays() {
    local at pid name
    strays=()
    for at in /proc/[0-9]*; do
        pid=${at#/proc/} name=
        [[ " $$ ${pids[*]} " == *" $pid "* ]] && continue
        { IFS= read -r -d '' name <"$at/cmdline"; } 2>/dev/null || true
        [ -z "$name" ] || strays+=("$name") # none: it has ended
    done
}

inside() {
    local nodes=$1 ranks=$2 mpiexec=$3 hosts='' i code=0 line
    shift 3
    make_network
    for ((i = 1; i <= nodes; i++)); do
        make_node "$i"
        hosts+=${hosts:+,}10.0.0.$i
    done
    NODE_PIDS="${pids[*]}" "$mpiexec" -launcher ssh -launcher-exec "$here/ssh.sh" -iface nodes -hosts "$hosts" \
        -ppn "$ranks" -n $((nodes * ranks)) "$@" </dev/null || code=$?

    for ((i = 0; i < 20; i++)); do
        find_strays
        [ ${#strays[@]} -gt 0 ] || break
        sleep 0.1
    done
    if [ ${#strays[@]} -gt 0 ]; then
        echo "nodes.sh: mpiexec ended with $code and left: ${strays[*]}" >&2
        code=99
    fi
    # What the bridge received from a node.
    while read -r line; do
        [[ $line =~ ^(node[0-9]+):\ *([0-9]+) ]] && echo "nodes.sh: ${BASH_REMATCH[1]} sent ${BASH_REMATCH[2]} bytes" >&2
    done </proc/net/dev
    exit $code
}

if [ "${1:-}" = --inside ]; then
    inside "${@:2}"
fi

# ---- outside ----

usage() {
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
}

nodes=2 ranks=2 mpich=
while getopts n:p:m: option; do
    case $option in
    n) nodes=$OPTARG ;;
    p) ranks=$OPTARG ;;
    m) mpich=$OPTARG ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
[ $# -ge 1 ] || usage

PATH=$PATH:/usr/sbin:/sbin
for tool in ip unshare nsenter setpriv hostname; do
    command -v $tool >/dev/null || skip "no program '$tool' (packages iproute2, util-linux, hostname)"
done
if [ -n "$mpich" ]; then
    [ -e "$mpich/lib/libmpich.so.12" ] || skip "no MPICH in $mpich: tests/nodes/get-mpich.sh $mpich fetches it"
    mpiexec=$mpich/bin/mpiexec
    export LD_LIBRARY_PATH=$mpich/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
else
    mpiexec=$(command -v "${MPIEXEC:-mpiexec}") || skip "no mpiexec"
fi
apart=(unshare --net --mount --pid --fork --kill-child --mount-proc)
if ! why=$("${apart[@]}" ip link set lo up 2>&1); then
    apart+=(--user --map-root-user) # what users may do in namespaces of their own
    "${apart[@]}" ip link set lo up 2>/dev/null || skip "no namespaces here: $why"
fi
exec setpriv --pdeathsig KILL "${apart[@]}" "$here/nodes.sh" --inside "$nodes" "$ranks" "$mpiexec" "$@"
