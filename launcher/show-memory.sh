#!/usr/bin/env bash
# Prints what each rank of two runs held, side by side by category, from their metrics files.
#
#   launcher/show-memory.sh NAME1 METRICS1 NAME2 METRICS2
#
# Reads the last object with "memory" in each file: the high-water marks in KiB, all tiers together.
set -euo pipefail
[ $# -eq 4 ] || { sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }

# Records end at '{': "rank" stands before the object with the coordinates, the category behind it.
list() {
    awk -v RS='{' '
    function after(key,    s) {
        if (!match($0, "\"" key "\"[ \t]*:[ \t]*"))
            return ""
        s = substr($0, RSTART + RLENGTH)
        if (s ~ /^"/) {
            s = substr(s, 2)
            sub(/".*/, "", s)
        } else
            sub(/[^0-9.eE+-].*/, "", s)
        return s
    }
    /"memory"/ { inside = 1; delete held; ranks = 0 }
    inside {
        category = after("category")
        if (category != "") {
            held[rank, category] += after("high_water")
            if (rank + 1 > ranks)
                ranks = rank + 1
        }
        if ((r = after("rank")) != "")
            rank = r + 0
    }
    /"communication"[ \t]*:/ { inside = 0 }
    END {
        for (key in held) {
            split(key, part, SUBSEP)
            print part[1], part[2], held[key]
        }
    }' "$1"
}

for file in "$2" "$4"; do
    [ -n "$(list "$file")" ] || { echo "$0: no memory object in $file" >&2; exit 5; }
done
{ list "$2" | sed 's/^/1 /'; list "$4" | sed 's/^/2 /'; } | awk -v name1="$1" -v name2="$3" '
{
    held[$1, $2, $3] += $4
    held[$1, $2, "all"] += $4
    held[$1, "max", $3] = held[$1, $2, $3] > held[$1, "max", $3] ? held[$1, $2, $3] : held[$1, "max", $3]
    held[$1, "max", "all"] = held[$1, $2, "all"] > held[$1, "max", "all"] ? held[$1, $2, "all"] : held[$1, "max", "all"]
    if ($2 + 1 > ranks)
        ranks = $2 + 1
}
function row(label, rank,    c) {
    printf "%-8s", label
    for (c = 1; c <= n; c++)
        printf " |%8.0f%8.0f", held[1, rank, category[c]] / 1024, held[2, rank, category[c]] / 1024
    printf "\n"
}
END {
    n = split("parameters gradients optimizer activations communication workspace all", category, " ")
    printf "%-8s", "KiB"
    for (c = 1; c <= n; c++)
        printf " | %-15s", category[c]
    printf "\n%-8s", "rank"
    for (c = 1; c <= n; c++)
        printf " |%8s%8s", name1, name2
    printf "\n"
    for (r = 0; r < ranks; r++)
        row(r, r)
    row("largest", "max")
}'
