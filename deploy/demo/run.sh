#!/bin/sh
# The demo: a hundred issues of a repository, worked on in parallel, each by an
# agent in its own jail. Everything it makes is below demo-run in the checkout,
# which git ignores and each demo begins anew. It needs no key and no account.
set -eu
cd "$(dirname "$0")/../.."
out=demo-run

if [ "$(uname -s)" != Linux ]; then
	echo "demo: the jails of the demo need Linux; this is $(uname -s)" >&2
	exit 1
fi
for program in go git; do
	command -v "$program" >/dev/null 2>&1 || { echo "demo: $program is not installed" >&2; exit 1; }
done
deploy/tools/install.sh bwrap

${MAKE:-make} --no-print-directory build

rm -rf "$out"
mkdir "$out"
deploy/demo/make-repo.sh "$out"
echo "demo: $out/repo has $(git -C "$out/repo" ls-files | wc -l) files, $out/issues.json has $(grep -c '"number"' "$out/issues.json") issues" >&2

set -- bin/penstock batch run "$out/issues.json" --repo "$out/repo" --format gh-issues \
	--data "$out/data" --max-parallel 16 --out "$out/results" -- .demo/agent.sh
echo "demo: $*" >&2
begin=$(date +%s)
code=0
"$@" || code=$?
echo "demo: took $(($(date +%s) - begin)) s" >&2
[ "$code" -eq 0 ] || exit "$code"

job=$(sed -n '1s/.*"job":"\([^"]*\)".*/\1/p' "$out/results/results.jsonl")
cat >&2 <<EOF

To look further:
  bin/penstock watch $job --data $out/data      what an agent did, event by event
  bin/penstock job diff $job --data $out/data   what it changed
  less $out/results/report.md
  $(pwd)/$out/results/report.html
EOF
if [ -n "${ANTHROPIC_API_KEY:-}" ]; then
	cat >&2 <<EOF

ANTHROPIC_API_KEY is set. To let Claude Code work on five of the same issues:
  bin/penstock batch run $out/issues.json --repo $out/repo --format gh-issues \\
    --data $out/data --limit 5 --max-parallel 5 --out $out/claude --agent claude
EOF
fi
