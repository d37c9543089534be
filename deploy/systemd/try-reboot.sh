#!/usr/bin/env bash
# try-reboot.sh PROGRAM: server and worker as services in a Debian 12 that it boots with
# systemd; in the middle of a batch that is rebooted (systemctl reboot), and then loses
# power. Needs root, debootstrap, systemd-container and e2fsprogs; changes nothing on the host.
#
# The loss of power is real for the disk: the container's is an image, which is copied the
# moment all processes have been killed. What nobody had synced by then is in the host's
# memory, not in the copy.
set -euo pipefail
program=$(realpath "$1")
cd "$(dirname "$0")"
root=${XDG_CACHE_HOME:-$HOME/.cache}/penstock-ci/bookworm
../../sandbox/systemd/testdata/root.sh "$root"
dir=$(mktemp -d)
machine=
clean() {
	[ -z "$machine" ] || kill -KILL "$machine" 2>/dev/null || true
	wait
	while mountpoint -q "$dir/root"; do umount -l "$dir/root"; done
	while mountpoint -q "$dir/disk"; do umount -l "$dir/disk"; done
	rm -rf "$dir"
}
trap clean EXIT
mkdir "$dir/out" "$dir/root" "$dir/disk"
cp try-reboot-inside.sh try-reboot-check.py ../../sandbox/sandboxtest/testdata/init.sh "$dir/out"
install -m 755 "$program" "$dir/out/penstock"

attach() { # IMAGE: as the disk of the container, whose root is an overlay
	mount -o loop "$1" "$dir/disk"
	mkdir -p "$dir"/disk/{upper,work,worker}
	mount -t overlay -o "lowerdir=$root,upperdir=$dir/disk/upper,workdir=$dir/disk/work" overlay "$dir/root"
}
start() { # the container
	# The kernel has to answer for what the jails try, not nspawn's own filter. No workspace
	# can be made on an overlay of two file systems.
	SYSTEMD_SECCOMP=0 systemd-nspawn --quiet --register=no --keep-unit --console=pipe --machine="penstock-reboot-$$" \
		--directory="$dir/root" --private-network --capability=all --bind="$dir/out:/out" \
		--bind="$dir/disk/worker:/var/lib/penstock-worker" \
		/out/init.sh systemd.show_status=no >>"$dir/out/console" 2>&1 &
	machine=$!
}
fail() {
	cat "$dir/out/log"
	tail -n 20 "$dir/out/console"
	echo "try-reboot.sh: $*" >&2
	exit 1
}
until_() { # FILE: until the container has made it
	local end=$((SECONDS + 600))
	until [ -e "$dir/out/$1" ]; do
		kill -0 "$machine" 2>/dev/null || fail "the container ended before it made $1"
		[ "$SECONDS" -le "$end" ] || fail "there is no $1 after ten minutes"
		sleep 0.1
	done
}

truncate -s 2G "$dir/1.img"
mkfs.ext4 -q -F "$dir/1.img"
attach "$dir/1.img"
# As a unit like others, so that the container boots as hosts do.
printf '%s\n' '[Service]' 'ExecStart=/out/try-reboot-inside.sh' 'ExecStopPost=/bin/sh -c "[ $SERVICE_RESULT = success ] || systemctl poweroff"' \
	'[Install]' 'WantedBy=multi-user.target' >"$dir/root/etc/systemd/system/try.service"
systemctl --root="$dir/root" --quiet enable try.service
start
code=0
wait "$machine" || code=$?
[ "$code" -eq 133 ] || fail "the container ended with $code: it did not reboot"
start
until_ pull-the-plug
# With the first process of a PID namespace all of it ends at once.
kill -KILL "$(pgrep -P "$machine")"
wait "$machine" || true
machine=
cp --sparse=always "$dir/1.img" "$dir/2.img"
umount -l "$dir/root" "$dir/disk"
attach "$dir/2.img"
start
until_ passed
wait "$machine" || true
machine=
cat "$dir/out/log"
