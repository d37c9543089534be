#!/bin/sh
# An upgrade. A worker begins jails with its own program, so it hands its jobs back, or lets
# them end, before that is replaced; and is started again afterwards.
set -e
case $1 in
upgrade | 2) ;;
*) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0
if systemctl --quiet is-active penstock-worker; then
	echo "penstock: the worker stops; running jobs have the time of worker.drain (10 min)"
	mkdir -p /run/penstock-upgrade
	touch /run/penstock-upgrade/worker
	systemctl stop penstock-worker
fi
