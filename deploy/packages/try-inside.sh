#!/bin/bash
# What try.sh does in the container.
exec >/out/log 2>&1
set -eu
cd /
trap 'echo "line $LINENO failed"; systemctl --no-pager status penstock penstock-worker; journalctl --no-pager -u penstock -u penstock-worker | tail -n 40' ERR
until_() { # COMMAND…: until it succeeds
	local end=$((SECONDS + 60))
	until "$@"; do
		[ "$SECONDS" -le "$end" ] || { echo "not within a minute: $*"; return 1; }
		sleep 0.1
	done
}
active() { systemctl --quiet is-active "$@"; }
# The container's root is an overlay of two file systems, which no workspace is made on.
mkdir -p /var/lib/penstock-worker && mount -t tmpfs tmpfs /var/lib/penstock-worker

dpkg -i /out/0.0.1/*.deb
if active penstock || active penstock-worker; then echo "a service starts without being asked"; exit 1; fi
systemd-analyze verify --man=no penstock.service penstock-worker.service
systemctl enable --now penstock
as_server() { runuser -u penstock -- penstock -c /etc/penstock/server.yaml "$@"; }
(umask 077 && as_server nats credentials worker >/etc/penstock/worker.creds && as_server nats credentials operator >/operator.creds)
pool() { penstock --server nats://127.0.0.1:4222 --creds /operator.creds "$@"; }
systemctl enable --now penstock-worker
git init -q -b main /srv/repo
git -C /srv/repo -c user.name=T -c user.email=t@example.com commit -q --allow-empty -m base
id=$(pool submit --backend bwrap --repo /srv/repo -o id -- sh -c 'echo up; sleep 5; echo done >file')
until_ sh -c "penstock --server nats://127.0.0.1:4222 --creds /operator.creds logs $id | grep -q up"
echo "ok: installed, started, and a job runs"

echo "# mine" >>/etc/penstock/server.yaml
server=$(systemctl show -p MainPID --value penstock)
dpkg -i /out/0.0.2/*.deb
[ "$(systemctl show -p MainPID --value penstock)" != "$server" ]
active penstock
until_ active penstock-worker
pool wait "$id"
[ "$(pool job get "$id" -o json | sed -n 's/^  "attempt": \(.*\),$/\1/p')" = 1 ]
tail -n 1 /etc/penstock/server.yaml | grep '# mine'
echo "ok: upgraded: both are started anew, the job that ran has ended in its first attempt, settings and data are kept"

dpkg -r penstock
if active penstock || active penstock-worker || [ -e /usr/bin/penstock ]; then echo "something is left"; exit 1; fi
[ -d /var/lib/penstock/nats ] && [ -s /etc/penstock/worker.creds ] && [ -s /etc/penstock/server.yaml ]
echo "ok: removed: services and program are gone, settings and data are kept"

dpkg -i /out/0.0.2/*.deb
systemctl start penstock penstock-worker
pool job get "$id" >/dev/null
umount -l /var/lib/penstock-worker
dpkg -P penstock
for left in /var/lib/penstock /var/lib/penstock-worker /etc/penstock /usr/lib/systemd/system/penstock.service /etc/systemd/system/multi-user.target.wants/penstock.service; do
	[ ! -e "$left" ] || { ls -laR "$left"; exit 1; }
done
echo "ok: installed again, with the data of before; purged: nothing is left"
touch /out/passed
