#!/usr/bin/env bash
# Makes a container image of a small Debian without a registry: debootstrap
# makes the root, the engine imports it. The image holds git, python and what is
# named besides, ready for isolation container.
#
#   deploy/images/debian-root.sh penstock/test:1            the image of the tests
#   deploy/images/debian-root.sh acme/agent:1 nodejs npm    one with more packages
#
# Needs root, for debootstrap. ENGINE chooses docker (default), podman or nerdctl;
# the archive stays in the cache directory, so that the next time takes seconds.
set -euo pipefail

[ $# -ge 1 ] || {
	sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
	exit 2
}
image=$1
shift
engine=${ENGINE:-docker}
suite=bookworm
packages=$(printf '%s,' git python3-minimal python3-distutils libpython3-stdlib procps ca-certificates "$@")
packages=${packages%,}

cache=${XDG_CACHE_HOME:-$HOME/.cache}/penstock-ci
archive=$cache/debian-$suite-$(printf %s "$packages" | sha256sum | cut -c1-16).tar
if [ ! -e "$archive" ]; then
	mkdir -p "$cache"
	root=$(mktemp -d "$cache/root.XXXXXX")
	trap 'rm -rf --one-file-system "$root" "$archive.part"' EXIT
	debootstrap --variant=minbase --include="$packages" "$suite" "$root" >&2
	rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/doc "$root"/usr/share/man
	tar -C "$root" --numeric-owner -cf "$archive.part" .
	mv "$archive.part" "$archive"
fi
"$engine" import "$archive" "$image"
