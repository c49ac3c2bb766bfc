#!/usr/bin/env bash
# From a machine with nothing installed to a trained transformer: installs packages, builds, trains on the King James
# Bible with eight ranks (tensor 2 x pipeline 2 x data 2, ZeRO 1, bf16), lets the model write, and compares what each
# rank holds when the same model runs as tensor parallel 8 and as ZeRO-3 over 8 ranks.
#
#   launcher/quickstart.sh [key=value ...]
#
# key=value: overrides of configs/quickstart.yaml for the training, e.g. train.train_iters=100. Those of the model
# (model.num_layers=2) hold for the sample and the comparison too, which are of the same model. Everything is written
# below build/. Needs Debian (or its apt) and root or sudo for the packages.
set -euo pipefail
cd "$(dirname "$0")/.."

model=()
for override in "$@"; do
    case $override in
    model.*=* | model=*) model+=("$override") ;;
    checkpoint.save_weights=* | checkpoint=* | logging.metrics_file=* | logging=*)
        echo "$0: $override: the sample and the checks read what the training writes to build/" >&2
        exit 2
        ;;
    *=*) ;;
    *)
        sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2
        exit 2
        ;;
    esac
done

corpus=build/kjv.txt corpus_bytes=4404412
config=configs/quickstart.yaml weights=build/quickstart.safetensors
plait=build/release/launcher/plait

say() { printf '\n== %s\n' "$*"; }

start=$SECONDS
say "packages"
launcher/install-packages.sh quick
install_seconds=$((SECONDS - start))

start=$SECONDS
say "build"
mkdir -p build
# The presets are stricter (warnings are errors) and want the packages of the tests.
if ! { cmake -S . -B build/release -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_COMPILE_WARNING_AS_ERROR=OFF -DPLAIT_TESTS=OFF -DPLAIT_BENCH=OFF &&
    cmake --build build/release; } >build/quickstart-build.log 2>&1; then
    cat build/quickstart-build.log >&2
    echo "$0: the build failed" >&2
    exit 1
fi
"$plait" version
build_seconds=$((SECONDS - start))

say "text"
bible -f "gen1:1-rev22:21" </dev/null >"$corpus.tmp"
mv "$corpus.tmp" "$corpus"
bytes=$(wc -c <"$corpus")
echo "King James Bible: $bytes bytes in $corpus"
[ "$bytes" -eq $corpus_bytes ] || echo "not the $corpus_bytes bytes of Debian 12's bible-kjv: losses will differ from the documented ones"

# check_evaluations METRICS: the validation loss falls each time and ends as low as documented.
check_evaluations() {
    sed -n 's/.*"after_step": *\([0-9]*\), *"loss": *\([0-9.eE+-]*\).*/\1 \2/p' "$1" | awk '
        NR > 1 && $2 >= last { printf "validation loss did not fall at iteration %d: %f, before %f\n", $1, $2, last; bad = 1 }
        { last = $2 }
        END {
            if (NR < 6) { printf "only %d evaluations\n", NR; bad = 1 }
            if (last >= 1.75) { printf "validation loss %f, expected below 1.75\n", last; bad = 1 }
            if (!bad) printf "validation loss fell at each of %d evaluations, to %f nats per byte\n", NR, last
            exit bad
        }'
}

start=$SECONDS
say "train: mpiexec -n 8 $plait train $config $*"
mpiexec -n 8 "$plait" train "$config" checkpoint.save_weights="$weights" logging.metrics_file=build/quickstart.jsonl "$@"
train_seconds=$((SECONDS - start))
# Overrides make another run, of which nothing is promised.
[ $# -gt 0 ] || check_evaluations build/quickstart.jsonl

# The weights fit any topology; without mpiexec one rank writes.
say "sample: $plait generate $weights $config --prompt \"In the beginning\" --bytes 400 ${model[*]}"
"$plait" generate "$weights" "$config" --prompt "In the beginning" --bytes 400 "${model[@]}"
echo

# run_few NAME OVERRIDE...: a few steps of the same model on 8 ranks in another topology. One sample a micro-batch, so that
# eight data ranks have one and the activations of both are of as many samples.
run_few() {
    local name=$1
    shift
    if ! mpiexec -n 8 "$plait" train "$config" train.train_iters=4 train.eval_interval=0 lr_scheduler.warmup_iters=0 \
        batch.micro_batch_size=1 checkpoint.save_weights=null logging.metrics_file="build/quickstart-$name.jsonl" \
        parallelism.pipeline_model_parallel_size=1 "${model[@]}" "$@" >"build/quickstart-$name.log" 2>&1; then
        cat "build/quickstart-$name.log" >&2
        echo "$0: the run as $name failed" >&2
        exit 1
    fi
}
start=$SECONDS
say "the same model as TP 8 and as ZeRO-3 over 8 ranks: what each rank held"
run_few tp8 parallelism.tensor_model_parallel_size=8 parallelism.data_parallel_size=1 zero_optimization.stage=0
run_few zero3 parallelism.tensor_model_parallel_size=1 parallelism.data_parallel_size=8 zero_optimization.stage=3
launcher/show-memory.sh "TP 8" build/quickstart-tp8.jsonl "ZeRO-3" build/quickstart-zero3.jsonl
echo "Tensor parallel slices everything that a layer holds, and pays with communication inside each layer; ZeRO-3 keeps the"
echo "model states in eighths, and gathers one unit after the other. Most of workspace is device.workspace, 32 MiB for the"
echo "kernels whatever the size of the model."
compare_seconds=$((SECONDS - start))

say "seconds"
printf 'package installation %5d s\nbuild                %5d s\ntraining             %5d s\ncomparison           %5d s\n' \
    $install_seconds $build_seconds $train_seconds $compare_seconds
