#!/bin/sh
# Runs benchmarks and prints what they measured, one figure a line. The
# packages run one after the other: together they would measure each other.
#
#	bench.sh PATTERN TIME PACKAGE…
set -eu
pattern=$1 time=$2
shift 2
processor=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -n 1)
echo "machine   $(uname -sr), $(getconf _NPROCESSORS_ONLN) processors: ${processor:-unknown}"
echo "load      $(uptime | sed 's/.*load average[s]*: *//') before the run"
echo "go        $(go env GOVERSION)"
out=$(mktemp)
trap 'rm -f "$out"' EXIT
status=0
go test -p 1 -timeout 2h -run '^$' -bench "$pattern" -benchtime "$time" "$@" >"$out" 2>&1 || status=$?
awk '
	function figure(value, unit) {
		if (unit == "ns/op") { value /= 1e6; unit = "ms/op" }
		printf "  %14.3f  %s\n", value, unit
	}
	/^pkg:/ { package = $2; sub(/.*github.com\/penstock-run\/penstock\//, "", package); next }
	/^Benchmark/ && NF > 3 {
		name = $1; sub(/^Benchmark/, "", name); sub(/-[0-9]+$/, "", name)
		printf "\n%s %s (%d rounds)\n", package, name, $2
		for (i = 3; i < NF; i += 2) figure($i, $(i + 1))
		next
	}
	/^(goos|goarch|cpu|PASS|ok|\?)/ || /no test files/ { next }
	/^Benchmark/ { next }
	{ print }
' "$out"
exit "$status"
