#!/usr/bin/env bash
# Puts the faults of mutants.txt into a copy of the program, one after the other, and sees whether a comparison of
# topologies finds them.
#
#   tests/invariance/mutants.sh [--check] [NAME...]
#
# NAME: mutants (mutants/NAME.patch); all of them unless said. Needs cmake, ninja, patch and mpiexec; uses ccache if it is
# there. The copy lies under TMPDIR and is removed at the end.
#
# --check only sees whether each patch fits the program as it is and changes the file that mutants.txt says, and whether
# mutants.txt and mutants/ name the same mutants. It takes a second.
#
# Each mutant is built, and trained on one rank: there the fault must not show. Then it is trained on the topologies below,
# until the fingerprint of losses and weights is not that of one rank, or the run fails or hangs: that catches it, and
# `plait diff` says where the two runs part. Prints a table as it goes; the last line is "N of M caught". Ends 0 if at most
# one was not caught, all of them could be built, and none changed what one rank computes.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$here/../..

. "$root/tests/mutants.sh"

# ---- what is trained ----

# Small, with clipping in every step.
common=(numerics.reduction=invariant numerics.tensor_slices=8 numerics.fingerprint=weights train.train_iters=4
    model.num_layers=4 model.ffn_hidden_size=64 model.seq_length=16 batch.global_batch_size=8 optimizer.clip_grad=0.1
    device.threads=1 comm.distributed_timeout_minutes=0.3)

# llama: units that are no multiple of 8 elements, so that shards have tails; two key/value heads, so that four tensor
# ranks have replicas both on one rank and on two. gpt: all that llama lacks. fp16: the scale begins too high for all
# ranks and comes down past where it is too high for some.
llama="model.hidden_size=60 model.kv_channels=8 model.num_query_groups=2"
declare -A models=(
    [llama]=$llama
    [gpt]="model.arch=gpt2 model.hidden_size=56 model.num_query_groups=8 model.tie_word_embeddings=true
        model.hidden_dropout=0.1 model.attention_dropout=0.1"
    [fp16]="$llama precision.dtype=fp16 precision.fp16.initial_scale_power=22 precision.fp16.hysteresis=1
        train.train_iters=6"
)

# Each axis by itself, then all together: model, ranks, name, keys.
topologies=(
    "gpt   1 recomputed                   recompute.granularity=full recompute.num_layers=2"
    "gpt   2 tp2                          parallelism.tp=2"
    "gpt   2 tp2,sp                       parallelism.tp=2 parallelism.sequence_parallel=true"
    "gpt   2 pp2                          parallelism.pp=2"
    "gpt   2 pp2,interleaved              parallelism.pp=2 parallelism.vpp=2"
    "gpt   2 dp2                          parallelism.dp=2"
    "gpt   2 dp2,zero1                    parallelism.dp=2 zero_optimization.stage=1"
    "llama 2 dp2,zero2                    parallelism.dp=2 zero_optimization.stage=2"
    "llama 2 dp2,zero3                    parallelism.dp=2 zero_optimization.stage=3"
    "gpt   2 dp2,root                     parallelism.dp=2 parallelism.data_parallel_algorithm=gather_to_root"
    "llama 4 tp4                          parallelism.tp=4"
    "fp16  2 dp2                          parallelism.dp=2"
    "llama 8 tp2,sp,pp2,dp2,zero1,recomputed parallelism.tp=2 parallelism.sequence_parallel=true parallelism.pp=2
        parallelism.dp=2 zero_optimization.stage=1 recompute.granularity=full"
    "fp16  8 tp2,pp2,interleaved,dp2,zero3 parallelism.tp=2 parallelism.pp=2 parallelism.vpp=2 parallelism.dp=2
        zero_optimization.stage=3"
)
limit=60 # seconds of one run, of which most take one or two

# ---- the copy ----

for tool in cmake ninja patch mpiexec; do
    command -v $tool >/dev/null || die "no program '$tool'"
done
scratch=$(mktemp -d "${TMPDIR:-/tmp}/plait-mutants.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
source=$scratch/source build=$scratch/build
plait=$build/launcher/plait

make_copy() {
    mkdir "$source"
    cp -a "$root"/CMakeLists.txt "$root"/{core,kernels,parallel,models,launcher,configs} "$source"
    local launcher=()
    if command -v ccache >/dev/null; then
        launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
        export CCACHE_BASEDIR=$scratch CCACHE_NOHASHDIR=1
    fi
    cmake -S "$source" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPLAIT_TESTS=OFF \
        -DCMAKE_COMPILE_WARNING_AS_ERROR=ON "${launcher[@]}" >"$scratch/log" 2>&1
}

build() {
    ninja -C "$build" plait >"$scratch/log" 2>&1
}

# ---- runs ----

# train MODEL RANKS NAME KEY=VALUE...: leaves $scratch/NAME.jsonl, and sets `fingerprint`, or returns the exit code.
train() {
    local model=$1 ranks=$2 name=$3 command=("$plait") code=0
    shift 3
    fingerprint=
    rm -f "$scratch/$name.jsonl"
    [ "$ranks" = 1 ] || command=(mpiexec -n "$ranks" "$plait")
    # shellcheck disable=SC2086 # a list of keys
    OMP_NUM_THREADS=1 timeout -k 1 $limit "${command[@]}" train "$source/configs/tiny8.yaml" "${common[@]}" \
        ${models[$model]} "$@" logging.metrics_file="$scratch/$name.jsonl" >"$scratch/output" 2>&1 </dev/null || code=$?
    [ $code = 0 ] || return $code
    fingerprint=$(sed -n 's/^fingerprint: \([0-9a-f]*\) .*/\1/p' "$scratch/output")
    [ -n "$fingerprint" ] # else the run has ended as if all were well, and is not
}

# Where the runs of one rank and of a topology part.
first_difference() {
    local text code=0
    text=$("$plait" diff "$scratch/$1.jsonl" "$scratch/topology.jsonl" 2>&1) || code=$?
    case $code in
    0) echo "the weights after the last step" ;;
    8) sed -n 's/^first difference: //p' <<<"$text" ;;
    *) echo "plait diff fails ($code)" ;;
    esac
}

# compare TOPOLOGY: 0 if it computes what one rank does, else 1, and `how` says what happened.
compare() {
    local model ranks name code=0 keys
    read -r -d '' model ranks name keys <<<"$1"
    # shellcheck disable=SC2086 # a list of keys
    train "$model" "$ranks" topology $keys || code=$?
    caught="$model $name"
    case $code in
    0)
        [ "$fingerprint" != "${reference[$model]}" ] || return 0
        how=$(first_difference "$model")
        ;;
    124 | 137) how="hangs" ;;
    *) how="fails ($code): $(grep -m 1 -i 'error\|fail' "$scratch/output" | cut -c 1-120)" ;;
    esac
    return 1
}

# ---- mutants ----

# Whether one rank computes what the program without a fault does.
one_rank_unchanged() {
    for model in "${!models[@]}"; do
        train "$model" 1 mutated || return 1
        [ "$fingerprint" = "${reference[$model]}" ] || return 1
    done
}

# Sets `one_rank`, `caught` and `how`.
try_mutant() {
    one_rank=no caught=- how=-
    apply "$1" "$source" >/dev/null || { how="the patch does not apply"; return 1; }
    if ! build; then
        how="does not compile: $(grep -m 1 'error:' "$scratch/log")"
    elif one_rank_unchanged; then
        one_rank=yes
        for topology in "${topologies[@]}"; do
            compare "$topology" || return 0
        done
        caught="not caught" how=-
    else
        how="one rank computes something else"
    fi
    return 1
}

if ! make_copy || ! build; then
    cat "$scratch/log"
    die "the program without a fault cannot be built"
fi
declare -A reference
for model in "${!models[@]}"; do
    train "$model" 1 "$model" || { cat "$scratch/output"; die "$model fails on one rank without any fault"; }
    reference[$model]=$fingerprint
done
for topology in "${topologies[@]}"; do
    compare "$topology" || die "without any fault $caught differs from one rank: $how"
done
echo "without a fault all ${#topologies[@]} topologies compute what one rank does ($SECONDS s)"

echo "| mutant | fault | one rank unchanged | caught by | how |"
echo "|---|---|---|---|---|"
num_caught=0 broken=0
for name in "${names[@]}"; do
    try_mutant "$name" && num_caught=$((num_caught + 1))
    [ $one_rank = yes ] || broken=$((broken + 1))
    read -r _ fault < <(said_of "$name")
    echo "| \`$name\` | $fault | $one_rank | $caught | $how |"
    apply "$name" "$source" -R >/dev/null || true # it may not have been applied
done
echo "$SECONDS s"
echo "$num_caught of ${#names[@]} caught"
[ $broken = 0 ] && [ $num_caught -ge $((${#names[@]} - 1)) ]
