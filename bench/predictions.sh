#!/usr/bin/env bash
# Step times that `plait plan --machine` predicts against those of runs, on one and two ranks of this machine.
#
#   bench/predictions.sh --machine FILE [--measure-machine] [--rounds N] [--steps N]
#
# FILE is what `plait bench` has written here; with --measure-machine it is made first, from nothing: plainly, then under
# mpiexec on two ranks. A line a configuration: predicted and measured seconds (median of the medians of the rounds) and
# how far the prediction is off. Then whether at least 12 of the 15 are within 15 %, none is off by more than 30 %, and of
# all pairs whose measured times differ by more than 10 % the faster one is named right in at least 9 of 10. Ends 1 if not.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/measure.sh

file='' fresh=0 rounds=3 steps=8 plait=${PLAIT:-build/release/launcher/plait}
while [ $# -gt 0 ]; do
    case $1 in
    --machine) file=$2; shift 2 ;;
    --measure-machine) fresh=1; shift ;;
    --rounds) rounds=$2; shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    *) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
    esac
done
[ -n "$file" ] || { echo "--machine FILE is missing" >&2; exit 2; }
[ -x "$plait" ] || { echo "build first: cmake --workflow --preset release" >&2; exit 2; }

# Chosen before any of them was run: two sizes of models, three micro-batches, every way to use two ranks.
cases=(
    "bench-b6 1 batch.micro_batch_size=8"
    "bench-b6 1 batch.micro_batch_size=4"
    "bench-b6 1 batch.micro_batch_size=2"
    "bench-b6 1 batch.micro_batch_size=4 recompute.granularity=full"
    "bench-b6 2 batch.micro_batch_size=4"
    "bench-b6 2 batch.micro_batch_size=4 zero_optimization.stage=3"
    "bench-b6 2 batch.micro_batch_size=2 zero_optimization.stage=3"
    "bench-b6 2 batch.micro_batch_size=8 parallelism.tp=2"
    "bench-b6 2 batch.micro_batch_size=4 parallelism.tp=2 parallelism.sequence_parallel=true"
    "bench-b6 2 batch.micro_batch_size=2 parallelism.pp=2"
    "gpt2-124m 1 batch.micro_batch_size=4"
    "gpt2-124m 2 batch.micro_batch_size=4 parallelism.tp=2"
    "gpt2-124m 2 batch.micro_batch_size=1 parallelism.pp=2"
    "gpt2-124m 2 batch.micro_batch_size=2 zero_optimization.stage=3"
    "gpt2-124m 2 batch.micro_batch_size=2 zero_optimization.stage=1 recompute.granularity=selective"
)

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# predicted CONFIG RANKS KEYS...: seconds of a step
predicted() {
    local config=$1 ranks=$2
    shift 2
    "$plait" plan "configs/$config.yaml" "$@" --ranks "$ranks" --machine "$file" --json >"$dir/plan.json"
    sed -n 's/.*"predicted":{.*"step_seconds":\([0-9.e+-]*\).*/\1/p' "$dir/plan.json" | grep .
}

# run CONFIG RANKS KEYS...: median seconds of a step, without the first two
run() {
    local config=$1 ranks=$2 command=("$plait")
    shift 2
    [ "$ranks" = 1 ] || command=(mpiexec -n "$ranks" "$plait")
    "${command[@]}" train "configs/$config.yaml" train.train_iters=$((steps + 2)) "$@" logging.metrics_file="$dir/run.jsonl" \
        >"$dir/log" 2>&1 </dev/null || { cat "$dir/log" >&2; return 1; }
    sed -n 's/.*"step": *[0-9].*"step_seconds": *\([0-9.eE+-]*\).*/\1/p' "$dir/run.jsonl" | tail -n +3 | median
}

machine
if [ $fresh = 1 ]; then
    rm -f "$file"
    "$plait" bench --machine "$file" --dtypes fp32
    mpiexec -n 2 "$plait" bench --machine "$file" --dtypes fp32
fi
# All predictions come before the first run.
for i in "${!cases[@]}"; do
    read -r config ranks keys <<<"${cases[$i]}"
    # shellcheck disable=SC2086 # a list of keys
    predicted "$config" "$ranks" $keys >"$dir/predicted.$i"
done
for _ in $(seq "$rounds"); do
    for i in "${!cases[@]}"; do
        read -r config ranks keys <<<"${cases[$i]}"
        # shellcheck disable=SC2086
        run "$config" "$ranks" $keys >>"$dir/measured.$i"
    done
done
for i in "${!cases[@]}"; do
    printf '%s\t%s\t%s\n' "$(cat "$dir/predicted.$i")" "$(median <"$dir/measured.$i")" "${cases[$i]}"
done | awk -F '\t' '
    { p[NR] = $1; m[NR] = $2; off = $1 / $2 - 1; away = off < 0 ? -off : off
      printf "%9.4f s predicted, %9.4f s measured, %+6.1f %%   %s\n", $1, $2, 100 * off, $3
      near += away <= 0.15; worst = away > worst ? away : worst }
    END {
        for (i = 1; i <= NR; i++)
            for (j = i + 1; j <= NR; j++)
                if (m[i] > 1.1 * m[j] || m[j] > 1.1 * m[i]) { pairs++; right += (m[i] < m[j]) == (p[i] < p[j]) }
        printf "%d of %d within 15 %%, the worst %.1f %% off; %d of %d pairs in the right order\n", near, NR, 100 * worst, right, pairs
        holds = near >= 12 && worst <= 0.3 && right >= 0.9 * pairs
        print holds ? "holds" : "MISSED"
        exit !holds
    }'
