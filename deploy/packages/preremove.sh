#!/bin/sh
# An upgrade is not a removal: Debian says "upgrade", RPM how many versions are left.
set -e
case $1 in
remove | 0) ;;
*) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0
systemctl disable --now --quiet penstock-worker penstock
