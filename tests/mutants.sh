# tests/mutants.sh: what the scripts that plant faults do alike. To be sourced by one that has set `here`, the directory of
# its mutants.txt and mutants/, and `root`, that of the program, and with its arguments.
#
# Leaves the names of the mutants to try in `names`; with --check it looks at them and ends the script.

usage() {
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
}

die() {
    echo "mutants.sh: $*" >&2
    exit 1
}

check=0
case ${1:-} in
--check) check=1; shift ;;
-*) usage ;;
esac
mapfile -t all < <(sed '/^#/d;s/ .*//;/^$/d' "$here/mutants.txt")
names=("$@")
[ $# -gt 0 ] || names=("${all[@]}")
for name in "${names[@]}"; do
    [ -f "$here/mutants/$name.patch" ] || die "no $here/mutants/$name.patch"
done

# said_of NAME: the file and the fault of mutants.txt.
said_of() {
    sed -n "s/^$1  *//p" "$here/mutants.txt"
}

# apply NAME DIR [OPTION]: the patch, to a tree. What is around the line may move a little, no more.
apply() {
    patch -s -p1 -F 1 --no-backup-if-mismatch -d "$2" "${@:3}" <"$here/mutants/$1.patch"
}

if [ $check = 1 ]; then
    bad=0
    diff <(printf '%s.patch\n' "${all[@]}" | sort) <(cd "$here/mutants" && printf '%s\n' * | sort) ||
        { echo "mutants.txt (<) and mutants/ (>) do not name the same mutants"; bad=1; }
    for name in "${names[@]}"; do
        apply "$name" "$root" --dry-run || { echo "mutants/$name.patch does not fit the program any more"; bad=1; }
        read -r file _ < <(said_of "$name")
        changed=$(sed -n 's,^+++ b/,,p' "$here/mutants/$name.patch")
        [ "$changed" = "$file" ] || { echo "mutants/$name.patch changes $changed, mutants.txt says $file"; bad=1; }
    done
    [ $bad = 0 ] && echo "${#names[@]} mutants fit"
    exit $bad
fi
