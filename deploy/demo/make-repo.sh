#!/bin/sh
# Makes the demo's git repository and its issues: make-repo.sh DIRECTORY
#
# Writes DIRECTORY/repo, a library of shell functions with tests and history,
# and DIRECTORY/issues.json, in the form in which this prints issues:
#
#	gh issue list --json number,title,body,url,labels
#
# Nothing of it depends on the time or the machine: the commits have the same
# hashes everywhere.
set -eu
out=${1:?usage: make-repo.sh DIRECTORY}
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

mkdir -p "$out/repo/test" "$out/repo/docs" "$out/repo/.demo"
for topic in checks lists numbers paths text units; do
	mkdir -p "$out/repo/lib/$topic" "$out/repo/test/$topic"
done
awk -v out="$out" -f "$here/generate.awk" "$here/functions.txt"
{
	echo '['
	cat "$out/issues.body"
	echo ']'
} >"$out/issues.json"
rm "$out/issues.body"
cp "$here/agent.sh" "$out/repo/.demo/agent.sh"
cp "$here/expect.sh" "$out/repo/test/expect.sh"
cp "$here/run-tests.sh" "$out/repo/run-tests.sh"
chmod +x "$out/repo/.demo/agent.sh" "$out/repo/run-tests.sh"
cat >"$out/repo/README.md" <<'EOF'
# Shelf

Small shell functions, one thing each. `lib` holds them, `test` their tests;
`./run-tests.sh` runs all of these, `sh test/units/feet_test.sh` one of them.

`.demo/agent.sh` is the program that works on issues here. It takes the place
that a coding agent with a model would have.
EOF

cd "$out/repo"
# The person's own configuration (hooks, signatures, templates) stays out of it.
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME='Shelf' GIT_AUTHOR_EMAIL='shelf@example.org'
export GIT_COMMITTER_NAME="$GIT_AUTHOR_NAME" GIT_COMMITTER_EMAIL="$GIT_AUTHOR_EMAIL"
day=1
commit() { # MESSAGE PATH...
	message=$1
	shift
	GIT_AUTHOR_DATE="2026-01-0$day 12:00:00 +0000" GIT_COMMITTER_DATE="2026-01-0$day 12:00:00 +0000"
	export GIT_AUTHOR_DATE GIT_COMMITTER_DATE
	git add -- "$@"
	git commit -q -m "$message"
	day=$((day + 1))
}
git init -q
git symbolic-ref HEAD refs/heads/main
commit 'Begin the library' README.md run-tests.sh test/expect.sh
for topic in checks lists numbers paths text units; do
	commit "Add the functions for $topic" "lib/$topic" "test/$topic" "docs/$topic.md"
done
commit 'Add an agent that works on issues' .demo
