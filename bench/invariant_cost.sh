#!/usr/bin/env bash
# What numerics.reduction invariant costs: step time and planned bytes of a rank against `fast`, in turn, on tiny8, b6 and
# gpt2-124m with one tensor rank (two threads) and with two.
#
#   bench/invariant_cost.sh [--rounds N] [--steps N] [key=value ...]
#
# key=value goes to all runs. Prints every pair, and a line a case with the median ratio of step times and both sizes. Ends 1
# when b6 on two tensor ranks takes more than 1.25 times as long.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/measure.sh

rounds=3 steps=8 plait=${PLAIT:-build/release/launcher/plait}
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2; shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    *=*) break ;;
    *) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
    esac
done
[ -x "$plait" ] || { echo "build first: cmake --workflow --preset release" >&2; exit 2; }

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
extra=("$@")

# run MODE CONFIG RANKS KEYS...: leaves $dir/MODE.jsonl; prints the median tokens per second
run() {
    local mode=$1 config=$2 ranks=$3 command=("$plait")
    shift 3
    [ "$ranks" = 1 ] || command=(mpiexec -n "$ranks" "$plait")
    "${command[@]}" train "configs/$config.yaml" train.train_iters=$((steps + 2)) numerics.reduction="$mode" "$@" \
        "${extra[@]}" logging.metrics_file="$dir/$mode.jsonl" >"$dir/log" 2>&1 </dev/null || { cat "$dir/log" >&2; return 1; }
    median_speed "$dir/$mode.jsonl"
}

# planned MODE CATEGORY: bytes of rank 0, of one category or ("") of all
planned() {
    tr '{' '\n' <"$dir/$1.jsonl" | sed -n "/\"planned\"/s/.*\"tier\":\"device\",\"category\":\"$2[a-z]*\",\"planned\":\([0-9]*\).*/\1/p" |
        awk -v ranks="$ranks" '{ sum += $1 } END { printf "%.0f", sum / ranks }'
}

cases=(
    "tiny8 1 device.threads=2"
    "tiny8 2 parallelism.tp=2 device.threads=1"
    "bench-b6 1 device.threads=2"
    "bench-b6 2 parallelism.tp=2 device.threads=1"
    "gpt2-124m 1 device.threads=2"
    "gpt2-124m 2 parallelism.tp=2 device.threads=1"
)
machine
for case in "${cases[@]}"; do
    read -r config ranks keys <<<"$case"
    : >"$dir/pairs"
    for _ in $(seq "$rounds"); do
        # shellcheck disable=SC2086 # a list of keys
        fast=$(run fast "$config" "$ranks" $keys) invariant=$(run invariant "$config" "$ranks" $keys)
        awk -v f="$fast" -v i="$invariant" 'BEGIN { printf "    %10.0f tok/s fast, %10.0f invariant: %.3f\n", f, i, f / i }' |
            tee -a "$dir/pairs"
    done
    ratio=$(awk '{ print $NF }' "$dir/pairs" | median)
    printf '%-10s tp %d: step time x %.3f; bytes of a rank %s -> %s, of these gradients %s -> %s\n' "$config" "$ranks" "$ratio" \
        "$(planned fast "")" "$(planned invariant "")" "$(planned fast gradients)" "$(planned invariant gradients)"
    [ "$case" != "${cases[3]}" ] || b6=$ratio
done
verdict "step time of b6, tp 2" "$b6" at-most 1.25
