#!/bin/sh
# Runs every fuzz target of the module, one after the other, for the given time
# each: fuzz.sh 20s. Go can fuzz only one target per call.
set -eu
time=${1:?usage: fuzz.sh TIME}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
targets=$(grep -rHoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sort)
if [ -z "$targets" ]; then
	echo "fuzz: no fuzz target found"
	exit 0
fi
echo "$targets" | while IFS= read -r line; do
	dir=$(dirname "${line%%:*}")
	name=${line##*func }
	echo "fuzz $dir $name"
	code=0
	go test -run='^$' -fuzz="^$name\$" -fuzztime="$time" "$dir" </dev/null >"$log" 2>&1 || code=$?
	cat "$log"
	# On a busy machine go test may report its own deadline as the target's
	# failure. A failure of the target comes with the input that caused it.
	if [ "$code" -ne 0 ] && grep -q 'context deadline exceeded' "$log" && ! grep -q -e 'Failing input' -e 'panic:' "$log"; then
		echo "fuzz: the time was up before $name had begun; give it more"
		continue
	fi
	[ "$code" -eq 0 ] || exit "$code"
done
