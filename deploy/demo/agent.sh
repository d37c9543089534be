#!/bin/sh
# A coding agent without a model. It reads an issue, writes the test that shows
# it, sees that test fail, changes the code until all tests pass, and commits.
# What a model would think of it finds by search: it tries one small edit after
# the other. It runs in its jail, in the root of a private copy of the repository.
set -eu
prompt=${PENSTOCK_PROMPT_FILE:?the agent reads its issue from the file named by PENSTOCK_PROMPT_FILE}
export GIT_AUTHOR_NAME='Demo Agent' GIT_AUTHOR_EMAIL='agent@example.org'
export GIT_COMMITTER_NAME="$GIT_AUTHOR_NAME" GIT_COMMITTER_EMAIL="$GIT_AUTHOR_EMAIL"

give_up() {
	echo "agent: $*" >&2
	exit 1
}

# The issue names a file and says, in so many words, what should be printed. A
# prompt may quote it more than once.
lib=$(sed -n 's/.*`\(lib\/[a-z_]*\/[a-z_]*\.sh\)`.*/\1/p' "$prompt" | head -n 1)
[ -n "$lib" ] || give_up "the issue names no file below lib"
test=test/${lib#lib/}
test=${test%.sh}_test.sh
cases=$(sed -n "s/^\`\([^\`]*\)\` should print \`\([^\`]*\)\`.*/expect '\2' \1/p" "$prompt" | awk '!seen[$0]++')
[ -n "$cases" ] || give_up "the issue does not say what should be printed"
name=$(echo "$cases" | sed -n "1s/^expect '[^']*' \([a-z0-9_]*\).*/\1/p")
echo "issue: $name in $lib"

# An edit may make a loop endless; its test must not be.
limit=
if command -v timeout >/dev/null; then limit='timeout 5'; fi
passes() { $limit sh "$test" >"$scratch/output" 2>&1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# First the test that shows the issue.
[ -e "$test" ] || printf '. ./test/expect.sh\n. ./%s\n' "$lib" >"$test"
echo "$cases" >>"$test"
if passes; then
	give_up "cannot reproduce: $test passes with what the issue expects"
fi
echo "reproduced: $(head -n 1 "$scratch/output")"

# propose prints an edit a line: line number, then what sed is to do there.
propose() {
	awk -v name="$name" '
		$0 ~ "^" name "\\(\\)" { inside = 1; next }
		/^}/ { inside = 0 }
		inside && !/i=\$\(\(i/ { line[++n] = NR; text[n] = $0 }
		function try(from, to) {
			for (k = 1; k <= n; k++) if (index(text[k], from)) print line[k] "\t" from "\t" to
		}
		END {
			try("-lt", "-gt"); try("-gt", "-lt")
			try("-lt", "-le"); try("-le", "-lt"); try("-gt", "-ge"); try("-ge", "-gt")
			try(" + ", " - "); try(" / ", " * "); try(" * ", " / ")
			try("%%", "%"); try("##", "#"); try("%", "%%"); try("#", "##")
			try("i=1", "i=0"); try("i=0", "i=1"); try("&&", "||"); try("||", "&&")
		}' "$lib"
}

# replace prints the file with one text of one line replaced, taken literally.
replace() {
	awk -v at="$1" -v from="$2" -v to="$3" '
		NR == at { i = index($0, from); $0 = substr($0, 1, i - 1) to substr($0, i + length(from)) }
		{ print }' "$4"
}

repair() {
	cp "$lib" "$scratch/original"
	propose >"$scratch/edits"
	tried=0
	tab=$(printf '\t')
	while IFS="$tab" read -r at from to; do
		tried=$((tried + 1))
		replace "$at" "$from" "$to" "$scratch/original" >"$lib"
		if passes; then
			echo "edit $tried works: line $at, '$from' becomes '$to'"
			return 0
		fi
		echo "edit $tried does not: line $at, '$from' becomes '$to'"
	done <"$scratch/edits"
	cp "$scratch/original" "$lib"
	give_up "none of $tried edits makes $test pass"
}

if grep -q "^$name()" "$lib" 2>/dev/null; then
	verb=Fix
	repair
else
	verb=Add
	[ -e "$lib" ] || echo '# shellcheck shell=sh' >"$lib"
	{
		echo
		awk '/^```sh$/ { code = 1; next } /^```$/ && code { exit } code' "$prompt"
	} >>"$lib"
	passes || give_up "the code in the issue does not do what it says: $(head -n 1 "$scratch/output")"
	echo "added $name as proposed"
fi

./run-tests.sh
git add -- "$lib" "$test"
git commit -q -m "$verb $name"
echo "committed: $(git log -1 --format='%h %s')"
