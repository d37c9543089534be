#!/bin/sh
set -e
systemd-sysusers penstock.conf penstock-worker.conf
systemd-tmpfiles --create penstock.conf penstock-worker.conf
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
systemctl try-restart penstock
if [ -e /run/penstock-upgrade/worker ]; then
	rm -rf /run/penstock-upgrade
	# It is ready when it has found its server, which may take longer than an upgrade.
	systemctl --no-block start penstock-worker
fi
