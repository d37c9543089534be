#!/usr/bin/env bash
# build.sh PROGRAM VERSION DIR: packages a program, which is built already, for Debian, RPM
# and Alpine, in DIR. The same program and version make the same packages. For a program of
# another ARCH, the variable PENSTOCK names one that runs here.
set -euo pipefail
program=$(realpath "$1") version=$2
mkdir -p "$3"
out=$(realpath "$3")
cd "$(dirname "$0")"
# A package needs a version that begins with a digit; a commit has none.
case $version in
v[0-9]*) version=${version#v} ;;
[0-9]*.*) ;;
*) version=0.0.0~${version//[^A-Za-z0-9.]/.} ;;
esac
BUILT=$(mktemp -d)
trap 'rm -rf "$BUILT"' EXIT
install -m 644 ../systemd/*.service ../systemd/*.conf ../systemd/*.yaml ../../LICENSE ../../CHANGELOG.md "$BUILT"
install -m 755 "$program" "$BUILT/penstock"
runs=${PENSTOCK:-$BUILT/penstock}
"$runs" completion bash >"$BUILT/penstock.bash"
"$runs" completion fish >"$BUILT/penstock.fish"
"$runs" completion zsh >"$BUILT/_penstock"
ARCH=${ARCH:-$(go env GOARCH)}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export ARCH VERSION=$version BUILT SOURCE_DATE_EPOCH
"$runs" docs --man "$BUILT/man"
# The licences of all that the compiler has put into the program.
(cd ../release && go run . -notices "$BUILT/THIRD_PARTY_LICENSES.txt" -copyright "$BUILT/copyright" "$BUILT/penstock" "$version")
gzip -n -9 "$BUILT"/man/*
touch -d "@$SOURCE_DATE_EPOCH" "$BUILT"/* "$BUILT"/man/*
package() { go tool -modfile=go.mod nfpm package --config "$1" --packager "$2" --target "$out/"; }
package nfpm.yaml deb
package nfpm.yaml rpm
package nfpm-apk.yaml apk
