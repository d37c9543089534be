#!/bin/sh
# Rewrites the golden files of every package whose tests declare an -update flag.
set -eu
grep -rlE --include='*_test.go' 'flag\.Bool(Var)?\([^)]*"update"' . | xargs -r -n1 dirname | sort -u |
	while IFS= read -r dir; do
		echo "update $dir"
		go test -count=1 "$dir" -update </dev/null
	done
