#!/usr/bin/env bash
# notes.sh VERSION: prints what the changelog says of a release.
set -euo pipefail
cd "$(dirname "$0")/../.."
awk -v heading="## [${1#v}]" '
	index($0, "## ") == 1 { if (found) exit; found = index($0, heading) == 1; next }
	found { print }
	END { exit !found }
' CHANGELOG.md || { echo "notes.sh: CHANGELOG.md has no section [${1#v}]" >&2; exit 1; }
