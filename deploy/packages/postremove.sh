#!/bin/sh
# Data and credentials stay until the package is purged, which RPM does not know.
set -e
[ ! -d /run/systemd/system ] || systemctl daemon-reload
[ "$1" = purge ] || exit 0
rm -rf /var/lib/penstock /var/lib/penstock-worker /run/penstock-upgrade
rm -f /etc/penstock/server.env /etc/penstock/worker.env /etc/penstock/worker.creds
rmdir --ignore-fail-on-non-empty /etc/penstock 2>/dev/null || true
