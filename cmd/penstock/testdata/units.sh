#!/bin/bash
# Installs server and worker by the command, in a container that was booted with systemd,
# and takes them through their life. A line "ok: …" is a step that held.
exec >/out/log 2>&1
set -eu
cd /
trap 'echo "line $LINENO failed"; systemctl --no-pager status penstock penstock-worker; journalctl --no-pager -u penstock -u penstock-worker | tail -n 60' ERR
ok() { echo "ok: $*"; }
is() { [ "$1" = "$2" ] || { echo "it is $1, not $2"; return 1; }; }
property() { systemctl show -p "$2" --value "$1"; }
until_() { # COMMAND…: until it succeeds
	local end=$((SECONDS + 60))
	until "$@"; do
		if [ "$SECONDS" -gt "$end" ]; then
			echo "not within a minute: $*"
			return 1
		fi
		sleep 0.1
	done
}

install -m 755 /penstock.test /usr/local/bin/penstock
penstock install --systemd
penstock install --systemd --worker
systemd-sysusers
systemd-tmpfiles --create
systemctl daemon-reload
systemd-analyze verify --man=no penstock.service penstock-worker.service 2>&1 | tee /out/verify
[ ! -s /out/verify ]
ok "systemd-analyze verify has nothing to say"
systemd-analyze security --no-pager penstock.service penstock-worker.service >/out/security || true
for unit in penstock penstock-worker; do systemd-analyze security --no-pager "$unit.service" | tail -n 1; done

# The container's root is an overlay of two file systems, which no workspace is made on.
mkdir -p /var/lib/penstock-worker && mount -t tmpfs tmpfs /var/lib/penstock-worker

# The tests' copy needs little time for each step; the units are as they are otherwise.
mkdir -p /etc/systemd/system/penstock.service.d /etc/systemd/system/penstock-worker.service.d
printf '[Service]\nWatchdogSec=6\nRestartSec=100ms\n' >/etc/systemd/system/penstock.service.d/test.conf
printf '[Service]\nTimeoutStopSec=3\n' >/etc/systemd/system/penstock-worker.service.d/test.conf
printf 'worker:\n  slots: 2\n  drain: 50s\n' >>/etc/penstock/worker.yaml
systemctl daemon-reload

as_server() { runuser -u penstock -- penstock -c /etc/penstock/server.yaml "$@"; }
if systemctl start penstock-worker; then echo "a worker without a credential starts"; exit 1; fi
systemctl start penstock
as_server job ls >/dev/null
ok "systemctl start returns when the server is ready"
(umask 077 && as_server nats credentials worker >/etc/penstock/worker.creds)
(umask 077 && as_server nats credentials operator >/operator.creds)
pool() { penstock --server nats://127.0.0.1:4222 --creds /operator.creds "$@"; }
systemctl start penstock-worker
is "$(property penstock-worker ActiveState)" active
ok "the worker is ready, with the credential that systemd handed over"
is "$(stat -c %U /proc/"$(property penstock-worker MainPID)")" penstock-worker
ok "the worker has a user of its own"

runuser -u penstock-worker -- penstock -c /etc/penstock/worker.yaml doctor
ok "the doctor finds nothing wrong"

export GIT_CONFIG_GLOBAL=/tmp/gitconfig
git config --global user.name T && git config --global user.email t@example.com
git init -q -b main /srv/repo && echo one >/srv/repo/file && git -C /srv/repo add -A && git -C /srv/repo commit -qm base
submit() { pool submit --backend bwrap --repo /srv/repo -o id "$@"; }
outcome() { pool job get "$1" -o json | sed -n 's/^  "outcome": "\(.*\)",*$/\1/p'; }
runs() { pool logs "$1" | grep -q up; }

id=$(submit -- sh -c 'echo two >file; id -un; ls /etc/penstock /run/credentials /var/lib/penstock; true')
pool wait "$id"
pool job diff "$id" | grep '^+two$'
ok "a job has changed a file, in a jail"
if pool logs "$id" | grep -e worker.creds -e nats; then echo "the jail shows what is the service's"; exit 1; fi

# Killed, the server is started again; the agent goes on meanwhile, and nothing is lost.
id=$(submit -- sh -c 'echo up; sleep 3; echo three >file')
queued=$(submit --priority low -- sh -c 'echo four >file')
until_ runs "$id"
before=$(property penstock MainPID)
kill -9 "$before"
restarted() { # both at one time
	local now
	now=$(systemctl show -p ActiveState -p MainPID penstock | sort | paste -sd ' ')
	[[ $now == "ActiveState=active "* && $now != *" MainPID=$before" ]]
}
until_ restarted
pool wait "$id" "$queued"
is "$(outcome "$id") $(outcome "$queued") $(property penstock-worker NRestarts)" "success success 0"
ok "killed, the server is back, and no job is lost"

# One that does not move is killed by the watchdog.
before=$(property penstock MainPID)
kill -STOP "$before"
until_ restarted
journalctl --no-pager -u penstock | grep 'Watchdog timeout'
ok "the watchdog ends a server that stands still"

systemctl reload penstock penstock-worker
until_ sh -c "journalctl --no-pager -u penstock-worker | grep -q 'settings were read again'"
ok "systemctl reload reads the settings again"

# The drain is longer than the unit's TimeoutStopSec, and has its time.
id=$(submit -- sh -c 'echo up; sleep 7; echo five >file')
until_ runs "$id"
systemctl stop penstock-worker
is "$(property penstock-worker Result) $(outcome "$id")" "success success"
ok "systemctl stop lets a running job end"
systemctl stop penstock
is "$(property penstock Result)" success
ok "the server stops in order"
printf 'nonsense: 1\n' >>/etc/penstock/server.yaml
if systemctl start penstock; then echo "it starts with settings that are wrong"; exit 1; fi
named() { journalctl --no-pager -u penstock | grep -q '"nonsense" is not a field'; }
until_ named
ok "settings that are wrong are named in the journal"
systemctl stop penstock
