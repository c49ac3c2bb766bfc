#!/usr/bin/env bash
# Builds Plait in five ways and runs its tests and checks.
#
#   tests/run.sh [--full] [--no-install]
#
# 1. installs the packages that are missing, and fetches an MPICH for tests over several nodes (not with --no-install)
# 2. dev      gcc, Debug, ASan and UBSan: the programs of tests with label `unit`, and these tests
#    clang    clang, Release, and where the headers of CUDA and NCCL are the emulation of GPUs: likewise; with --full the
#             tests with label `full-cuda` too, and a build that looks for races in kernels and between them
#    release  gcc, Release: every test but those with label `full`; with --full these too
#    openblas gcc, Release, with the other library of matrix products: the tests of kernels that use it
#    cuda     where CUDA (its compiler) and NCCL are: the kernels, what the compiler made of them, the program, and the
#             tests that tests/device.sh takes to a machine with a GPU
#    Warnings are errors in all of them.
# 3. .ci/check-layers, .ci/check-format, .ci/check-tidy
#
# Goes on after a failure, so that one run shows all of them. The last line is "N passed, N failed": tests of all ctest
# runs; a build or a check that fails counts as one failed. Tests that this machine cannot run are neither: they are
# listed above it as skipped. Ends 0 only if nothing failed and something was run.
set -uo pipefail
cd "$(dirname "$0")/.."

full=0 install=1
for arg in "$@"; do
    case $arg in
    --full) full=1 ;;
    --no-install) install=0 ;;
    *) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
    esac
done

jobs=$(nproc)
passed=0 failed=0 skipped=0
summary=() not_run=()

# part NAME COMMAND...: runs it and notes its seconds. Returns what the command returned.
part() {
    local name=$1 start=$SECONDS rc=0
    shift
    printf '\n== %s\n' "$name"
    "$@" || rc=$?
    summary+=("$(printf '%-16s %5d s%s' "$name" $((SECONDS - start)) "$([ $rc = 0 ] || echo "   FAILED ($rc)")")")
    return $rc
}

# must NAME COMMAND...: a part that is not a count of tests: its failure is one failure.
must() {
    part "$@" || { failed=$((failed + 1)); return 1; }
}

# The number in an attribute of the first <testsuite> of a JUnit file; 0 without one.
attribute() {
    sed -n 's/.*[[:space:]]'"$2"'="\([0-9]*\)".*/\1/p;/<testcase/q' "$1" | head -n 1 | grep . || echo 0
}

# tests PRESET: runs ctest and adds up what its report says.
tests() {
    local preset=$1 dir=$2 report rc=0 total bad off skip
    report=$PWD/build/$dir/tests-$preset.xml
    rm -f "$report"
    part "test $preset" ctest --preset "$preset" -j "$jobs" --output-junit "$report" || rc=$?
    if [ ! -s "$report" ]; then
        failed=$((failed + 1))
        return
    fi
    total=$(attribute "$report" tests) bad=$(attribute "$report" failures)
    off=$(attribute "$report" disabled) skip=$(attribute "$report" skipped)
    # A test that could not be started is no failure in the report, but makes ctest fail.
    if [ "$rc" != 0 ] && [ "$bad" = 0 ]; then bad=1; fi
    passed=$((passed + total - bad - off - skip))
    failed=$((failed + bad))
    skipped=$((skipped + off + skip))
    mapfile -t -O ${#not_run[@]} not_run < <(sed -n '/status="\(notrun\|disabled\)"/s/.*<testcase name="\([^"]*\)".*/'"$preset"' \1/p' "$report")
}

# Without it tests are skipped, nothing fails.
fetch_mpich() {
    timeout 150 tests/nodes/get-mpich.sh build/release/mpich ||
        echo "no MPICH from PyPI: tests over several nodes are skipped"
}

build() {
    local preset=$1 target=$2
    must "configure $preset" cmake --preset "$preset" &&
        must "build $preset" cmake --build --preset "$preset" -j "$jobs" -t "$target" -- -k 0
}

# Whether the build has code for GPUs. Without it nothing fails; what is left out is said at the end.
has_cuda() {
    grep -q '^PLAIT_WITH_CUDA:INTERNAL=ON' "build/$1/CMakeCache.txt" && return
    not_run+=("$1: code for GPUs (no CUDA 12 or later with NCCL)")
    skipped=$((skipped + 1))
    return 1
}

trap 'echo interrupted; exit 130' INT TERM
start=$SECONDS
mkdir -p build
if [ $install = 1 ]; then
    part install launcher/install-packages.sh test || { echo "0 passed, 1 failed"; exit 1; }
    part mpich fetch_mpich
fi
for preset in dev clang; do
    build $preset unit_tests && tests $preset $preset
done
if [ $full = 1 ] && has_cuda clang; then
    tests full-cuda clang
    build fakecuda-race unit_tests && tests fakecuda-race fakecuda-race
fi
build release all && tests release release
if [ $full = 1 ]; then tests full release; fi
must "configure openblas" cmake --preset openblas &&
    must "build openblas" cmake --build --preset openblas -j "$jobs" -t test_conformance test_cpu &&
    tests openblas openblas
must "configure cuda" cmake --preset cuda -DPLAIT_CUDA=AUTO -DCMAKE_CUDA_FLAGS=-no-compress
if has_cuda cuda; then
    must "kernels cuda" .ci/check-cuda build/cuda
    must "build cuda" cmake --build --preset cuda -j "$jobs" -t device_programs
fi
must layers .ci/check-layers
must format .ci/check-format
must tidy .ci/check-tidy build/clang

printf '\n== seconds\n'
printf '%s\n' "${summary[@]}"
printf '%-16s %5d s\n' all $((SECONDS - start))
if [ $skipped != 0 ]; then
    echo "$skipped skipped:"
    printf '    %s\n' "${not_run[@]}"
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
