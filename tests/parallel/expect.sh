#!/bin/sh
# expect.sh CODE TEXT COMMAND...: the command ends by itself within 20 seconds, with this exit code (an asterisk: any but
# 0), and its output has the text.
code=$1 text=$2
shift 2
out=$(timeout 20 "$@" 2>&1)
got=$?
printf '%s\n' "$out"
if [ "$got" -eq 124 ]; then
    echo "expect.sh: still running after 20 seconds"
    exit 1
fi
if [ "$code" = '*' ] && [ "$got" -eq 0 ] || [ "$code" != '*' ] && [ "$got" -ne "$code" ]; then
    echo "expect.sh: exit code $got, expected $code"
    exit 1
fi
case $out in
*"$text"*) exit 0 ;;
esac
echo "expect.sh: the output lacks: $text"
exit 1
