#!/bin/sh
# Runs all tests, or those below the given directory: ./run-tests.sh test/units
cd "$(dirname "$0")" || exit 1
count=0 bad=0
for file in $(find "${1:-test}" -name '*_test.sh' | sort); do
	count=$((count + 1))
	sh "$file" || bad=$((bad + 1))
done
echo "$count test files, $bad failed"
[ "$count" -gt 0 ] && [ "$bad" -eq 0 ]
