#!/usr/bin/env bash
# try-source.sh [TARGET…]: what a stranger does who has read the README, with HEAD, in a
# Debian 12 that is made for it with git, make and Go and nothing else: clones, and makes the
# targets (demo). It prints how long each took. Needs root, debootstrap and
# systemd-container; changes nothing on the host.
#
# Modules come from the host's module cache, in the place of a proxy, and are compiled anew.
# Packages come from Debian's archive (DEBIAN_MIRROR).
set -euo pipefail
cd "$(dirname "$0")/../.."
dir=$(mktemp -d)
trap 'rm -rf --one-file-system "$dir"' EXIT
git bundle create --quiet "$dir/penstock.bundle" HEAD
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
debootstrap --variant=minbase --include=ca-certificates,git,make bookworm "$dir/root" "$mirror" >"$dir/log" 2>&1 || { tail "$dir/log"; exit 1; }
# As the installer of Debian writes it.
printf '127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n' >"$dir/root/etc/hosts"
cat >"$dir/inside.sh" <<'INSIDE'
set -e
# What nspawn covers there, no jail could mount a /proc below.
umount -R /proc/sys /proc/acpi /proc/bus /proc/fs /proc/irq /proc/kmsg 2>/dev/null || true
export HOME=/root PATH=/usr/local/go/bin:$PATH GOPROXY=file:///modules GOTOOLCHAIN=local
cd /root
git clone --quiet /penstock.bundle penstock
cd penstock
for target; do
	begin=$SECONDS
	make "$target"
	echo "try-source: make $target: $((SECONDS - begin)) s"
done
INSIDE
[ $# -gt 0 ] || set -- demo
# The kernel has to answer for what the jails try, not nspawn's own filter.
SYSTEMD_SECCOMP=0 systemd-nspawn --quiet --register=no --keep-unit --console=pipe --machine="penstock-source-$$" \
	--directory="$dir/root" --capability=all --bind-ro="$(go env GOROOT):/usr/local/go" \
	--bind-ro="$(go env GOMODCACHE)/cache/download:/modules" --bind-ro="$dir/penstock.bundle:/penstock.bundle" \
	--bind-ro="$dir/inside.sh:/inside.sh" bash /inside.sh "$@"
