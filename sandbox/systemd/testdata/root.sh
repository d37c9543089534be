#!/usr/bin/env bash
# root.sh DIR: makes DIR a Debian with systemd and what the tests run in jails,
# for systemd-nspawn. Needs root and debootstrap; takes a minute, once.
set -euo pipefail
dir=$1
packages=systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,bubblewrap,git,gcc,libc6-dev,make,python3,procps,gpg,gpg-agent
# One that was made by an older version of this script is made again.
[ "$(cat "$dir/complete" 2>/dev/null)" != "$packages" ] || exit 0
rm -rf "$dir.part" && mkdir -p "$(dirname "$dir")"
debootstrap --variant=minbase \
	--include="$packages" \
	"${2:-bookworm}" "$dir.part" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}"
# Its user manager is the other backend under test.
chroot "$dir.part" useradd --create-home --uid 1234 --shell /bin/bash tester
rm -rf "$dir.part"/var/cache/apt/archives/*.deb "$dir.part"/var/lib/apt/lists/*
echo "$packages" >"$dir.part/complete"
rm -rf "$dir"
mv "$dir.part" "$dir"
