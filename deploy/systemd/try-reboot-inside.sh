#!/bin/bash
# What try-reboot.sh does in the container, after each of three boots.
exec >>/out/log 2>&1
set -eu
cd /
trap 'echo "line $LINENO failed"; systemctl --no-pager status penstock penstock-worker; journalctl --no-pager -b -u penstock -u penstock-worker | tail -n 60' ERR
export HOME=/root
boot=$(($(cat /boots 2>/dev/null || echo 0) + 1))
echo "$boot" >/boots
sync /boots
until_() { # COMMAND…: until it succeeds
	local end=$((SECONDS + 300))
	until "$@"; do
		[ "$SECONDS" -le "$end" ] || { echo "not within five minutes: $*"; return 1; }
		sleep 0.2
	done
}
as_server() { runuser -u penstock -- penstock -c /etc/penstock/server.yaml "$@"; }
pool() { penstock --server nats://127.0.0.1:4222 --creds /root/operator.creds "$@"; }
batch() { # each item leaves one commit on a branch; each fourth takes six seconds
	pool batch run /root/items.jsonl --repo /srv/repo --out /root/results --max-parallel 3 --max-attempts 5 --progress plain \
		--backend bwrap --deliver branch -- sh -c \
		'echo "$PENSTOCK_PROMPT" >"file-$PENSTOCK_PROMPT"; sleep "0.$((PENSTOCK_PROMPT % 3))"; [ $((PENSTOCK_PROMPT % 4)) != 0 ] || sleep 6; git add -A && git commit -qm "item $PENSTOCK_PROMPT"'
}
# Jobs beside the batch, one after the other. An id is written down, outside of the
# container, when the pool has said that it is accepted.
accepted() {
	while sleep 0.5; do pool submit --backend bwrap --repo /srv/repo --max-attempts 5 -o id -- true >>/out/accepted 2>/dev/null || true; done
}
results() { cat /root/results/results.jsonl 2>/dev/null | wc -l; }
have() { [ "$(results)" -ge "$1" ]; }
# The middle: that many items have a result, and one that takes six seconds runs.
middle() {
	until_ have "$1"
	until_ sh -c "ps -C sleep -o args= | grep -q 'sleep 6'"
}

case $boot in
1)
	install -m 755 /out/penstock /usr/local/bin/penstock
	penstock install --systemd
	penstock install --systemd --worker
	systemd-sysusers
	systemd-tmpfiles --create
	# The worker may write where it delivers branches, and a stop does not wait for jobs.
	mkdir -p /etc/systemd/system/penstock-worker.service.d /srv/repo
	printf '[Service]\nReadWritePaths=/srv/repo\n' >/etc/systemd/system/penstock-worker.service.d/repo.conf
	printf 'worker:\n  slots: 3\n  drain: 2s\n' >>/etc/penstock/worker.yaml
	systemctl daemon-reload
	git config --global user.name T && git config --global user.email t@example.com && git config --global safe.directory '*'
	git init -q -b main /srv/repo && git -C /srv/repo commit -q --allow-empty -m base
	chown -R penstock-worker /srv/repo
	systemctl enable --now penstock
	(umask 077 && as_server nats credentials worker >/etc/penstock/worker.creds && as_server nats credentials operator >/root/operator.creds)
	systemctl enable --now penstock-worker
	for item in $(seq 30); do echo "{\"item\":\"$item\",\"prompt\":\"$item\"}"; done >/root/items.jsonl
	sync # what is installed, and nothing after this
	echo "ok: installed and started"
	batch &
	accepted &
	middle 8
	echo "ok: rebooted in the middle: $(results) of 30 items have a result"
	systemctl reboot
	sleep infinity
	;;
2)
	until_ systemctl --quiet is-active penstock penstock-worker
	echo "ok: both services are back without being asked"
	batch &
	accepted &
	middle $(($(results) + 8))
	echo "ok: the power goes in the middle: $(results) of 30 items have a result"
	touch /out/pull-the-plug
	sleep infinity
	;;
3)
	until_ systemctl --quiet is-active penstock penstock-worker
	echo "ok: both services are back without being asked"
	batch
	pool batch status /root/results
	pool wait $(cat /out/accepted)
	python3 /out/try-reboot-check.py
	touch /out/passed
	systemctl poweroff
	;;
esac
