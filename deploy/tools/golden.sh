#!/bin/sh
# Rewrites the golden files of every package whose tests declare an -update flag, by the
# tests of the files that use the flag.
set -eu
grep -rlE --include='*_test.go' 'flag\.Bool(Var)?\([^)]*"update"' . | xargs -r -n1 dirname | sort -u |
	while IFS= read -r dir; do
		tests=$(grep -lF '*update' "$dir"/*_test.go | xargs sed -n 's/^func \(Test[A-Za-z0-9_]*\)(.*/\1/p' | paste -sd'|' -)
		echo "update $dir"
		go test -count=1 -run "^($tests)\$" "$dir" -update </dev/null
	done
