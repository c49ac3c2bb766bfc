#!/usr/bin/env bash
# What a machine with an NVIDIA GPU says: the tests of the code for GPUs with the real libraries, training against the
# host, memory against the plan, rates of all operations, steps of GPT-2 and a Llama beside PyTorch.
#
#   tests/device.sh pack FILE              on a machine with nvcc: builds (sm_90, or PLAIT_DEVICE_ARCHITECTURES) and packs
#                                          what is needed there into FILE, a .tar.xz: programs, their libraries, mpiexec
#   tests/device.sh run OUT [SECONDS]      where FILE was unpacked, with the GPU: one file a part under OUT, and
#                                          OUT/summary.txt; at most SECONDS (540) in all
#
# The machine with the GPU needs a driver, the libraries of CUDA and NCCL, and for the last part python3 with PyTorch;
# it needs no compiler, no MPI and no network. Parts run in the order of their worth, each writes its file when it ends,
# and one is left out when less than a minute remains. Ends 0 if no part that ran has failed.
set -uo pipefail
cd "$(dirname "$0")/.."

usage() {
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
}

# ---- pack ----

programs="launcher/plait tests/kernels/test_conformance tests/kernels/test_cuda_kernels tests/parallel/test_device
    tests/parallel/test_comm_device tests/models/test_cuda_training tests/models/test_cuda_matrix"
# What a machine with a GPU has itself, of the versions that fit its driver.
not_packed='^(ld-linux|libc|libm|libdl|librt|libpthread|libcuda|libcudart|libcublas|libcublasLt|libnccl|libnvidia.*)\.'

pack() {
    local file=$1 build=build/device dir program library
    cmake -S . -B $build --preset cuda -DCMAKE_CUDA_ARCHITECTURES="${PLAIT_DEVICE_ARCHITECTURES:-90-real}" || exit 1
    cmake --build $build -j "$(nproc)" -t device_programs || exit 1
    dir=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "rm -rf '$dir'" EXIT
    mkdir -p "$dir/plait/bin" "$dir/plait/lib" "$dir/plait/tests" "$dir/plait/bench"
    for program in $programs; do
        strip -o "$dir/plait/bin/${program##*/}" "$build/$program" || exit 1
    done
    for program in mpiexec hydra_pmi_proxy; do
        cp -L "$(command -v $program)" "$dir/plait/bin/" || exit 1
    done
    ldd "$dir"/plait/bin/* | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u | while read -r library; do
        [[ ${library##*/} =~ $not_packed ]] || cp -L "$library" "$dir/plait/lib/"
    done
    cp -r configs "$dir/plait/"
    cp tests/device.sh "$dir/plait/tests/"
    cp bench/torch_model.py bench/measure.sh "$dir/plait/bench/"
    tar -C "$dir" -cf - plait | xz -T0 -9 >"$file" || exit 1
    ls -l "$file"
}

# ---- run ----

started=$SECONDS
failed=0

remaining() {
    echo $((limit - (SECONDS - started)))
}

# part NAME SECONDS COMMAND...: runs it with its output in OUT/NAME.log, unless less than a minute remains.
part() {
    local name=$1 most=$2 rc=0 began=$SECONDS
    shift 2
    if [ "$(remaining)" -lt 60 ]; then
        printf '%-28s left out: %s s remain\n' "$name" "$(remaining)" | tee -a "$out/summary.txt"
        return
    fi
    [ "$most" -le "$(($(remaining) - 20))" ] || most=$(($(remaining) - 20))
    # In a shell of its own, since some parts are functions.
    timeout -k 5 "$most" bash -c '"$@"' part "$@" >"$out/$name.log" 2>&1 </dev/null || rc=$?
    case $rc in
    0) rc=passed ;;
    77) rc='skipped (this machine lacks what it needs)' ;;
    *) rc="FAILED ($rc): $(grep -m 1 -E 'Failure|plait: |error' "$out/$name.log" | cut -c 1-100)"; failed=1 ;;
    esac
    printf '%-28s %s, %d s\n' "$name" "$rc" $((SECONDS - began)) | tee -a "$out/summary.txt"
}

# gtest NAME SECONDS RANKS PROGRAM [FILTER]
gtest() {
    local name=$1 most=$2 ranks=$3 program=$4 filter=${5:-*} launch=()
    [ "$ranks" = 0 ] || launch=(mpiexec -n "$ranks")
    part "$name" "$most" "${launch[@]}" "bin/$program" "--gtest_filter=$filter" --gtest_brief=1 \
        "--gtest_output=json:$out/$name.json"
}

# losses METRICS: one a line.
losses() {
    sed -n 's/.*"step": *[0-9].*"loss": *\([0-9.eE+-]*\).*/\1/p' "$1"
}

# compare NAME BOUND RANKS OVERRIDE...: a few steps on GPUs and in fp32 on the host, by $kernels; the largest relative
# difference of the losses goes into OUT/NAME.json.
compare() {
    local name=$1 bound=$2 ranks=$3 host=$out/${1%%.*}.host.jsonl
    shift 3
    [ -s "$host" ] || OMP_NUM_THREADS=$(nproc) bin/plait train "$config" train.train_iters=5 device.backend=cpu \
        device.kernels=$kernels precision.dtype=fp32 logging.metrics_file="$host" || return 1
    mpiexec -n "$ranks" bin/plait train "$config" train.train_iters=5 device.backend=cuda "$@" \
        logging.metrics_file="$out/$name.gpu.jsonl" || return 1
    paste <(losses "$host") <(losses "$out/$name.gpu.jsonl") | awk -v name="$name" -v bound="$bound" '
        NF == 2 { d = ($2 - $1) / $1; if (d < 0) d = -d; if (d > most) most = d; n++ }
        END { printf "{\"name\": \"%s\", \"steps\": %d, \"largest_difference\": %g, \"bound\": %g}\n", name, n, most, bound
              exit !(n == 5 && most <= bound) }' | tee "$out/$name.json"
    return "${PIPESTATUS[1]}"
}

# used_mib: of the device, by everybody. By process a container often shows nothing.
used_mib() {
    nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -n 1
}

# memory: what a run takes of the device against what its banner plans.
memory() {
    local planned used before
    before=$(used_mib)
    bin/plait train configs/gpt2-124m.yaml device.backend=cuda precision.dtype=bf16 train.train_iters=200 >"$out/memory.run" &
    local pid=$!
    for _ in $(seq 60); do
        sleep 1
        grep -q 'iteration  *5/' "$out/memory.run" && break
        kill -0 $pid 2>/dev/null || break
    done
    used=$(($(used_mib) - before))
    kill $pid 2>/dev/null
    wait $pid
    planned=$(sed -n 's/^ *0 d0 .* \([0-9,]*\)$/\1/p' "$out/memory.run" | tr -d ,)
    [ -n "$planned" ] && [ "$used" -gt 0 ] || return 1
    printf '{"planned_bytes": %s, "used_bytes": %s, "beside_it": %s}\n' "$planned" $((used << 20)) \
        $(((used << 20) - planned)) | tee "$out/memory.json"
    [ $((used << 20)) -ge "$planned" ]
}

# The data sheet of this GPU, if there is one of it.
data_sheet() {
    case $(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1) in
    *H200*) echo configs/machines/h200-sxm.yaml ;;
    *H100*) echo configs/machines/h100-sxm.yaml ;;
    *A100*) echo configs/machines/a100-80gb.yaml ;;
    esac
}

# speed NAME ARCH LAYERS WIDTH HEADS GROUPS FFN VOCABULARY LENGTH BATCH: training in bf16 by Plait and by PyTorch, eager and
# compiled: tokens a second, seconds of a step, and by the model's FLOPs, as Plait counts them, the share of the peak.
speed() {
    local name=$1 arch=$2 layers=$3 width=$4 heads=$5 groups=$6 ffn=$7 vocab=$8 length=$9 batch=${10} mode one
    local tokens=$((length * batch)) speeds=() flops peak
    bin/plait train configs/gpt2-124m.yaml device.backend=cuda precision.dtype=bf16 model.arch=$arch model.num_layers=$layers \
        model.hidden_size=$width model.num_attention_heads=$heads model.num_query_groups=$groups \
        model.ffn_hidden_size=$ffn model.vocab_size=$vocab model.seq_length=$length model.max_position_embeddings=$length \
        batch.micro_batch_size=$batch batch.global_batch_size=$batch train.train_iters=12 train.log_interval=1 \
        logging.metrics_file="$out/$name.plait.jsonl" | tee "$out/$name.run" || return 1
    [ "${PIPESTATUS[0]}" = 0 ] || return 1
    . bench/measure.sh
    for mode in plait eager compile; do
        if [ $mode != plait ]; then
            python3 bench/torch_model.py --device "$torch_device" --dtype bf16 --arch $arch --vocab $(((vocab + 127) / 128 * 128)) \
                --layers $layers --width $width --heads $heads --groups $groups --ffn $ffn --length $length --batch $batch \
                --steps 12 --metrics "$out/$name.$mode.jsonl" $([ $mode = eager ] || echo --compile) || continue
        fi
        one=$(median_speed "$out/$name.$mode.jsonl") && speeds+=("$mode $one")
    done
    flops=$(sed -n 's,.*tokens/s: \([0-9]*\) | model GFLOP/s: \([0-9.]*\).*,\1 \2,p' "$out/$name.run" | awk 'END { print 1e9 * $2 / $1 }')
    peak=$([ -z "$sheet" ] || sed -n 's/^peak_gflops: {bf16: \([0-9]*\).*/\1e9/p' "$sheet")
    printf '%s\n' "${speeds[@]}" | awk -v name="$name" -v tokens=$tokens -v flops="$flops" -v peak="${peak:-0}" '
        { rates = rates separator sprintf("\"%s\": %.6g", $1, $2)
          seconds = seconds separator sprintf("\"%s\": %.4g", $1, tokens / $2)
          mfu = mfu separator (peak > 0 ? sprintf("\"%s\": %.3f", $1, $2 * flops / peak) : "")
          separator = ", " }
        END { printf "{\"model\": \"%s\", \"tokens_per_second\": {%s}, \"step_seconds\": {%s}, \"mfu\": %s}\n", name, rates,
                  seconds, (peak > 0 ? "{" mfu "}" : "null") }' | tee "$out/$name.json"
}

run() {
    out=$1 limit=${2:-540}
    mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
    export PATH=$PWD/bin:$PATH OMP_NUM_THREADS=1 HWLOC_COMPONENTS=-pci
    export LD_LIBRARY_PATH=$PWD/lib:${LD_LIBRARY_PATH:-}:/usr/local/cuda/lib64
    local sheet torch_device=${PLAIT_DEVICE_TORCH:-cuda}
    sheet=$(data_sheet)
    export out sheet torch_device
    export -f compare losses used_mib memory speed
    : >"$out/summary.txt"
    part version 30 bin/plait version
    PLAIT_TEST_TABLES=cuda gtest conformance 120 0 test_conformance '*/cuda_*'
    PLAIT_TEST_TABLES=cuda gtest kernels 60 0 test_cuda_kernels
    gtest device 30 0 test_device
    gtest communication 60 4 test_comm_device
    gtest training 90 2 test_cuda_training
    gtest one_rank 60 8 test_cuda_matrix '*.OneRank'
    export config kernels=ref # which take minutes for the larger model
    for config in configs/tiny.yaml configs/bench-b6.yaml; do
        local model=${config##*/}
        [ "$config" = configs/tiny.yaml ] || kernels=auto
        model=${model%.yaml}
        for dtype in fp32 bf16 fp16; do
            local bound=1e-5
            [ $dtype = fp32 ] || bound=1e-2
            part "$model.$dtype" 60 compare "$model.$dtype" $bound 1 precision.dtype=$dtype
            part "$model.$dtype.staged" 60 compare "$model.$dtype.staged" $bound 4 precision.dtype=$dtype \
                comm.backend=staged parallelism.tp=2 parallelism.pp=2
        done
    done
    part memory 90 memory
    part gpt2-124m 90 speed gpt2-124m gpt2 12 768 12 12 3072 50257 1024 8
    # shellcheck disable=SC2046
    part rates 120 bin/plait bench kernels --backend cuda --json "$out/rates.json" $([ -z "$sheet" ] || echo --against "$sheet")
    part llama-1.1b 120 speed llama-1.1b llama 22 2048 32 4 5632 32000 2048 4
    part gpt2-1.5b 120 speed gpt2-1.5b gpt2 48 1600 25 25 6400 50257 1024 4
    # What the parts measured; the tests' own files are long.
    grep -h '^{"[a-z_]*": .*}$' "$out"/*.json >>"$out/summary.txt"
    cat "$out/rates.log" >>"$out/summary.txt" 2>/dev/null
    exit $failed
}

case ${1:-} in
pack) [ $# -eq 2 ] || usage; pack "$2" ;;
run) [ $# -ge 2 ] && [ $# -le 3 ] || usage; run "$2" "${3:-540}" ;;
*) usage ;;
esac
