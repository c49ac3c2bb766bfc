#!/usr/bin/env bash
# What splitting costs: tokens per second of eight ranks (tensor 2 x pipeline 2 x data 2) against one rank with two threads, on
# configs/bench-b6.yaml, in turn. Meant for a machine of two cores.
#
#   bench/eight_ranks.sh [--rounds N] [--steps N] [key=value ...]
#
# key=value goes to both runs. Prints every pair and the median ratio (eight ranks / one rank). Ends 1 when it is below 0.6.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/measure.sh

rounds=5 steps=8 plait=build/release/launcher/plait
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2; shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    *=*) break ;;
    *) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
    esac
done
[ -x $plait ] || { echo "build first: cmake --workflow --preset release" >&2; exit 2; }

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
common=(train configs/bench-b6.yaml train.train_iters=$((steps + 2)) "$@")

# speed NAME COMMAND...: median tokens per second
speed() {
    local name=$1
    shift
    "$@" logging.metrics_file="$dir/$name.jsonl" >"$dir/$name.log" 2>&1 </dev/null || { cat "$dir/$name.log" >&2; return 1; }
    median_speed "$dir/$name.jsonl"
}

# A batch of 8 on two data ranks in micro-batches of 1: four a pipeline, as few as keep two stages busy.
eight=(parallelism.tensor_model_parallel_size=2 parallelism.pipeline_model_parallel_size=2 batch.micro_batch_size=1)
machine
printf '%5s %14s %14s %7s\n' round '8 ranks tok/s' '1 rank tok/s' ratio
for round in $(seq "$rounds"); do
    many=$(speed eight mpiexec -n 8 $plait "${common[@]}" "${eight[@]}")
    one=$(speed one $plait "${common[@]}" device.threads=2)
    awk -v r="$round" -v m="$many" -v o="$one" 'BEGIN { printf "%5d %14.0f %14.0f %7.3f\n", r, m, o, m / o }' | tee -a "$dir/pairs"
done
verdict speed "$(awk '{ print $4 }' "$dir/pairs" | median)" at-least 0.6
