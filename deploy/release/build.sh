#!/usr/bin/env bash
# build.sh DIR: makes in DIR all files of a release: an archive for each of TARGETS with the
# program, its licences, completions and manual pages, packages for Debian, RPM and Alpine, bills of materials, and
# checksums of all of them. VERSION, COMMIT and DATE (of the commit, RFC 3339) come from the
# environment; the same source with the same three makes the same files, wherever it lies.
set -euo pipefail
: "${VERSION:?}" "${COMMIT:?}" "${DATE:?}"
targets=${TARGETS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64}
mkdir -p "$1"
out=$(realpath "$1")
[ -z "$(ls "$out")" ] || { echo "build.sh: $out is not empty" >&2; exit 1; }
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
SOURCE_DATE_EPOCH=$(date -d "$DATE" +%s)
export SOURCE_DATE_EPOCH

compile() { # OS ARCH FILE
	CGO_ENABLED=0 GOOS=$1 GOARCH=$2 go build -trimpath -buildvcs=false \
		-ldflags "-s -w -X main.version=$VERSION -X main.commit=$COMMIT -X main.date=$DATE" -o "$3" ./cmd/penstock
}
# Completions and manual pages are what a program of this machine prints.
compile "$(go env GOHOSTOS)" "$(go env GOHOSTARCH)" "$work/penstock"
mkdir "$work/completions"
"$work/penstock" completion bash >"$work/completions/penstock.bash"
"$work/penstock" completion fish >"$work/completions/penstock.fish"
"$work/penstock" completion zsh >"$work/completions/_penstock"
"$work/penstock" docs --man "$work/man"

for target in $targets; do
	os=${target%/*} arch=${target#*/}
	name=penstock_${VERSION#v}_${os}_$arch
	mkdir "$work/$name"
	compile "$os" "$arch" "$work/$name/penstock"
	(cd deploy/release && go run . -sbom "$out/$name.cdx.json" -notices "$work/$name/THIRD_PARTY_LICENSES.txt" "$work/$name/penstock" "$VERSION")
	cp -r "$work/completions" "$work/man" LICENSE README.md CHANGELOG.md "$work/$name"
	tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mode=go=u-w --mtime="@$SOURCE_DATE_EPOCH" -cf - "$name" | gzip -9n >"$out/$name.tar.gz"
	if [ "$os" = linux ]; then
		PENSTOCK=$work/penstock ARCH=$arch deploy/packages/build.sh "$work/$name/penstock" "$VERSION" "$out"
	fi
done
cd "$out"
sha256sum -- * >"$work/checksums.txt"
mv "$work/checksums.txt" .
