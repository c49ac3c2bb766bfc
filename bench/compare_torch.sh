#!/usr/bin/env bash
# Training speed and memory of Plait against PyTorch eager on the same model, one process each, in turn.
#
#   bench/compare_torch.sh [--rounds N] [--steps N] [--threads N] [--dtype fp32|bf16] [--python PYTHON]
#
# The model is configs/bench-b6.yaml: GPT-2 with 6 layers of 384, 6 heads, 256 positions, batch 8, 8192 tokens, tied.
# PYTHON has PyTorch and is only needed here. Prints every pair and the median ratios (Plait / PyTorch) of tokens
# per second and of peak resident memory. Both sides clip gradients inside the timed step. Ends 1 when Plait is slower than 0.9
# of PyTorch or takes more than half of its memory.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/measure.sh

rounds=5 steps=10 threads=2 dtype=fp32 python=python3 plait=build/release/launcher/plait
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2 ;;
    --steps) steps=$2 ;;
    --threads) threads=$2 ;;
    --dtype) dtype=$2 ;;
    --python) python=$2 ;;
    *) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
    esac
    shift 2
done
[ -x $plait ] || { echo "build first: cmake --workflow --preset release" >&2; exit 2; }
"$python" -c 'import torch' || { echo "$python has no PyTorch: --python" >&2; exit 2; }

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export OMP_NUM_THREADS=$threads

run_plait() {
    run_peak "$dir/plait.log" $plait train configs/bench-b6.yaml train.train_iters=$((steps + 2)) precision.dtype=$dtype \
        device.threads=$threads logging.metrics_file="$dir/plait.jsonl" || { cat "$dir/plait.log" >&2; return 1; }
}
run_torch() {
    run_peak "$dir/torch.log" "$python" bench/torch_model.py --steps $((steps + 2)) --threads $threads --dtype $dtype \
        --metrics "$dir/torch.jsonl" || { cat "$dir/torch.log" >&2; return 1; }
}

machine
echo "bench-b6, $dtype, $threads threads, $steps steps a run; PyTorch $("$python" -c 'import torch; print(torch.__version__)') eager"
printf '%5s %14s %14s %7s %16s %16s\n' round 'Plait tok/s' 'PyTorch tok/s' ratio 'Plait MiB' 'PyTorch MiB'
for round in $(seq "$rounds"); do
    # Who goes first alternates too: the second of a pair finds a warmer machine.
    if [ $((round % 2)) = 1 ]; then
        plait_peak=$(run_plait)
        torch_peak=$(run_torch)
    else
        torch_peak=$(run_torch)
        plait_peak=$(run_plait)
    fi
    plait_speed=$(median_speed "$dir/plait.jsonl")
    torch_speed=$(median_speed "$dir/torch.jsonl")
    awk -v r="$round" -v p="$plait_speed" -v t="$torch_speed" -v pm="$plait_peak" -v tm="$torch_peak" \
        'BEGIN { printf "%5d %14.0f %14.0f %7.3f %16.0f %16.0f\n", r, p, t, p / t, pm / 1024, tm / 1024 }' | tee -a "$dir/pairs"
done
rc=0
verdict speed "$(awk '{ print $4 }' "$dir/pairs" | median)" at-least 0.9 || rc=1
verdict memory "$(awk '{ print $5 / $6 }' "$dir/pairs" | median)" at-most 0.5 || rc=1
exit $rc
