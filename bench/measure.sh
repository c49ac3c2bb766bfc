# bench/measure.sh: functions for scripts that compare two commands. To be sourced.
#
# Absolute speeds of a shared machine drift by tens of percent within minutes; the ratio of two runs made in turn is
# what stays. So commands are run alternately, every pair is printed, and the median of the ratios is the result.

# run_peak LOG COMMAND...: runs the command with its output in LOG; prints the highest resident memory in KiB that the
# process itself reached (VmHWM, read until it ends). Returns the command's status.
run_peak() {
    local log=$1 peak=0 now rc=0 pid
    shift
    "$@" >"$log" 2>&1 </dev/null &
    pid=$!
    while kill -0 $pid 2>/dev/null; do
        now=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' /proc/$pid/status 2>/dev/null) || now=
        [ -z "$now" ] || peak=$now
        sleep 0.05
    done
    wait $pid || rc=$?
    echo "$peak"
    return $rc
}

# median_speed METRICS: median of tokens_per_second over the steps after the first two.
median_speed() {
    sed -n 's/.*"step": *[0-9].*"tokens_per_second": *\([0-9.eE+-]*\).*/\1/p' "$1" | tail -n +3 | median
}

# median: of the numbers on standard input, one a line.
median() {
    sort -g | awk '{ v[NR] = $1 } END { if (!NR) exit 1; m = int((NR + 1) / 2); print NR % 2 ? v[m] : (v[m] + v[m + 1]) / 2 }'
}

# verdict WHAT RATIO at-least|at-most BOUND: prints the ratio and whether it holds; returns 1 if it does not.
verdict() {
    awk -v what="$1" -v ratio="$2" -v side="$3" -v bound="$4" 'BEGIN {
        holds = side == "at-least" ? ratio >= bound : ratio <= bound
        printf "median ratio of %s: %.3f, %s %s: %s\n", what, ratio, side, bound, holds ? "holds" : "MISSED"
        exit !holds
    }'
}

# machine: what a reader has to know about where the numbers come from.
machine() {
    printf '%s, %s cores, commit %s\n' "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)" \
        "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
}
