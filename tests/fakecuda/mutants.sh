#!/usr/bin/env bash
# Puts the faults of mutants.txt into a copy of the program, one after the other, and sees whether the tests under the
# emulation of a GPU find them.
#
#   tests/fakecuda/mutants.sh [--check] [NAME...]
#
# NAME: mutants (mutants/NAME.patch); all of them unless said. Needs the headers of the CUDA toolkit, clang++, cmake, ninja,
# patch and mpiexec; uses ccache if it is there. The copy lies under TMPDIR and is removed at the end.
#
# --check only sees whether each patch fits the program as it is and changes the file that mutants.txt says, and whether
# mutants.txt and mutants/ name the same mutants. It takes a second.
#
# The copy is built with the race detector. A mutant of a kernel is looked for by the rows of conformance, by
# test_cuda_kernels and test_cuda_gemm; one of streams or communication by test_comm_device and test_cuda_training, in lazy
# and in random order. The first test that fails, or hangs, catches it. Prints a table as it goes; the last line is "N of M
# caught". Ends 0 if nothing failed before a mutant was in, all could be built, and nine of ten are caught.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$here/../..

. "$root/tests/mutants.sh"

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
trap 'exit 130' INT TERM
(cd "$root" && git ls-files -z | xargs -0 tar cf -) | tar xf - -C "$copy" || die "the program could not be copied"
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON)
# What a mutant leaves unused is no error.
cmake -S "$copy" --preset fakecuda-race -DCMAKE_COMPILE_WARNING_AS_ERROR=OFF "${launcher[@]}" >"$copy/log" 2>&1 || { cat "$copy/log" >&2; die "no configuration"; }
build=$copy/build/fakecuda-race
export HWLOC_COMPONENTS=-pci OMP_NUM_THREADS=1

build() {
    cmake --build "$build" -t test_conformance test_cuda_kernels test_cuda_gemm test_comm_device test_cuda_training >"$copy/log" 2>&1
}

# The tests of a mutant's file, one after the other until one fails. Says which, in `by`.
find_in() {
    local file=$1 t rc
    local kernels=("env PLAIT_TEST_TABLES=cuda timeout 600 $build/tests/kernels/test_conformance --gtest_filter=*cuda_bf16*"
        "env PLAIT_TEST_TABLES=cuda timeout 600 $build/tests/kernels/test_conformance --gtest_filter=*cuda_fp32*"
        "timeout 600 $build/tests/kernels/test_cuda_kernels"
        "timeout 600 $build/tests/test_cuda_gemm")
    local ranks=("timeout 300 mpiexec -n 3 $build/tests/parallel/test_comm_device"
        "env FAKECUDA_SCHEDULE=lazy timeout 600 mpiexec -n 2 $build/tests/models/test_cuda_training"
        "env FAKECUDA_SEED=7 timeout 600 mpiexec -n 2 $build/tests/models/test_cuda_training")
    local tests=("${ranks[@]}")
    [[ $file == kernels/*.cu* ]] && tests=("${kernels[@]}")
    for t in "${tests[@]}"; do
        rc=0
        $t >"$copy/log" 2>&1 </dev/null || rc=$?
        [ $rc = 0 ] && continue
        by=$(grep -m 1 -E 'fakecuda: |Failure|plait_status|error' "$copy/log" | cut -c 1-100)
        [ $rc != 124 ] || by="does not end; ${by:-no word of it}"
        return 1
    done
}

build || { cat "$copy/log" >&2; die "the program itself could not be built"; }
for file in kernels/cuda/norm.cu parallel/comm.c; do
    find_in $file || { cat "$copy/log" >&2; die "a test fails without any mutant"; }
done
caught=0 broken=0
for name in "${names[@]}"; do
    read -r file what < <(said_of "$name")
    apply "$name" "$copy" || die "mutants/$name.patch does not fit"
    by=
    if ! build; then
        result="NOT BUILT"
        broken=$((broken + 1))
    elif find_in "$file"; then
        result="not caught"
    else
        result="caught"
        caught=$((caught + 1))
    fi
    printf '%-36s %-10s %s: %s   %s\n' "$name" "$result" "$file" "$what" "$by"
    apply "$name" "$copy" -R || die "mutants/$name.patch could not be taken out"
done
echo "$caught of ${#names[@]} caught"
[ $broken = 0 ] && [ $((10 * caught)) -ge $((9 * ${#names[@]})) ]
