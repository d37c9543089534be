#!/bin/sh
# Runs every fuzz target of the module, one after the other, for the given time
# each: fuzz.sh 20s. Go can fuzz only one target per call.
set -eu
time=${1:?usage: fuzz.sh TIME}

targets=$(grep -rHoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sort)
if [ -z "$targets" ]; then
	echo "fuzz: no fuzz target found"
	exit 0
fi
echo "$targets" | while IFS= read -r line; do
	dir=$(dirname "${line%%:*}")
	name=${line##*func }
	echo "fuzz $dir $name"
	go test -run='^$' -fuzz="^$name\$" -fuzztime="$time" "$dir" </dev/null
done
