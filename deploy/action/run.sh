#!/usr/bin/env bash
# Runs one job for action.yml, which gives the inputs as variables, and writes the
# outputs to the file GITHUB_OUTPUT. It ends with the exit code of penstock run.
set -euo pipefail
result=$(mktemp)
trap 'rm -f "$result"' EXIT
flags=(--timeout "$TIMEOUT" --patch "$PATCH" -o json)
[ -z "$CHECK" ] || flags+=(--check "$CHECK")
[ -z "$MAX_COST" ] || flags+=(--max-cost "$MAX_COST")
if [ -n "$COMMAND" ]; then
	flags+=(-- sh -c "$COMMAND")
else
	flags+=(--agent "$AGENT")
fi
code=0
printf '%s' "$PROMPT" | penstock run - "${flags[@]}" >"$result" || code=$?
# The first one: the agent's own result stands after it.
outcome=$(tail -n 1 "$result" | sed -n 's/"outcome":"\([a-z]*\)".*/\n\1/; s/.*\n//p')
printf 'outcome=%s\npatch=%s\n' "$outcome" "$PATCH" >>"$GITHUB_OUTPUT"
exit "$code"
