#!/usr/bin/env bash
# try.sh [TARGET…]: makes a release of HEAD twice, in different directories and with nothing
# cached of either, compares the two, and looks into the first. It takes as long as it takes
# to compile the program twice for each target (linux/amd64), and publishes nothing.
set -euo pipefail
cd "$(dirname "$0")/../.."
export TARGETS="${*:-linux/amd64}" VERSION=${VERSION:-v0.0.0} COMMIT DATE
COMMIT=$(git rev-parse HEAD)
DATE=$(TZ=UTC0 git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for source in a elsewhere/b; do
	mkdir -p "$dir/$source/penstock"
	git archive "$COMMIT" | tar -x -C "$dir/$source/penstock"
	GOCACHE="$dir/$source/cache" "$dir/$source/penstock/deploy/release/build.sh" "$dir/$source/out"
done
diff -r "$dir/a/out" "$dir/elsewhere/b/out"
echo "ok: both are the same, byte by byte"
cd "$dir/a/out"
sha256sum --check --quiet checksums.txt
ls -l
name=penstock_${VERSION#v}_$(go env GOHOSTOS)_$(go env GOHOSTARCH)
tar -tzf "$name.tar.gz"
tar -xzf "$name.tar.gz" -C "$dir"
"$dir/$name/penstock" version -o json | grep -e "\"version\": \"$VERSION\"" -e "\"commit\": \"$COMMIT\"" -e "\"date\": \"$DATE\"" >"$dir/said"
[ "$(wc -l <"$dir/said")" -eq 3 ]
echo "ok: the program says version, commit and date"
