#!/usr/bin/env bash
# Runs tests in a kernel that is not the host's: an emulated machine without a
# network. There control groups are of version 2, and quotas exist.
#
#	vm.sh [-d] PACKAGE [TEST FLAG…]
#	vm.sh [-d] -s ROOT SCRIPT PACKAGE…
#
# In the first form the test binary is the first program but one; the machine has
# no disk, and its memory holds that and a few programs of the host. In the second
# the machine has a copy of the Debian in ROOT and boots its systemd, and root runs
# SCRIPT there, with the test binaries of the packages, and programs, in /tests:
# cgroup.test, systemd.test, penstock.
#
# It changes nothing on the host; as root or not (the second form: who may read
# ROOT). It needs qemu-system-x86, cpio and kmod, or e2fsprogs. The kernel lies in
# the user's cache; with -d it is downloaded from Debian's archive where it is
# missing, and unpacked, not installed. PENSTOCK_TEST_KERNEL names another
# directory with boot/ and lib/modules/. Exit code 75: it cannot run here, and says
# why.
set -euo pipefail

unable() {
	echo "vm: $*" >&2
	exit 75
}

usage() {
	echo "usage: vm.sh [-d] PACKAGE [TEST FLAG…] | vm.sh [-d] -s ROOT SCRIPT PACKAGE…" >&2
	exit 2
}
download= system=
while getopts ds: option; do
	case $option in
	d) download=1 ;;
	s) system=$OPTARG ;;
	*) usage ;;
	esac
done
shift $((OPTIND - 1))
[ $# -ge 1 ] && [ -z "$system" -o $# -ge 2 ] || usage

[ "$(uname -m)" = x86_64 ] || unable "the emulated machine is x86-64, this one is $(uname -m)"
PATH=$PATH:/usr/sbin:/sbin
needs=(cpio insmod ldd)
[ -z "$system" ] || needs=(mkfs.ext4 debugfs)
for program in qemu-system-x86_64 "${needs[@]}"; do
	command -v "$program" >/dev/null || unable "$program is not installed"
done

dir=$(mktemp -d)
machine=
stop() { [ -z "$machine" ] || kill -9 "$machine" 2>/dev/null || true; }
trap 'stop; rm -rf "$dir"' EXIT

kernel=${PENSTOCK_TEST_KERNEL-${XDG_CACHE_HOME:-$HOME/.cache}/penstock-kernel}
there() { compgen -G "$kernel/boot/vmlinuz-*" >/dev/null; }
fetch() { # the kernel of this distribution's package archive, for one of us at a time
	local name
	mkdir -p "$(dirname "$kernel")" && exec 8>"$kernel.lock" && flock 8 || return
	! there || return 0
	name=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/ *Depends: //p' | head -n 1) &&
		(cd "$dir" && apt-get download -qq -o APT::Sandbox::User=root "$name") >&2 &&
		rm -rf "$kernel.new" && dpkg-deb -x "$dir"/linux-image-*.deb "$kernel.new" && mv -T "$kernel.new" "$kernel" &&
		exec 8>&-
}
if ! there; then
	{ [ -n "$download" ] && command -v apt-get >/dev/null; } || unable "there is no kernel in $kernel; vm.sh -d downloads one"
	fetch || unable "no kernel could be downloaded"
fi

# boot MEMORY KERNEL-ARGUMENTS QEMU-ARGUMENT…: ends with the exit code that the machine
# tells. An emulated machine may come to stand still, and what runs in it says nothing
# then: it shows by its second serial line, on which it must give a sign of life every
# few seconds. It is booted once more, and only once; what hangs in a machine that lives
# is not forgiven.
boot() {
	local try code began=$SECONDS
	for try in first second; do
		run "$@"
		code=$(sed -n 's/^vm: exit //p' "$dir/log")
		[ -z "$code" ] || exit "$code"
		[ -e "$dir/still" ] || break
		echo "vm: the $try machine stood still" >&2
	done
	echo "vm: the machine ended without a result" >&2
	exit 1
}

run() {
	local memory=$1 arguments=$2 reader
	shift 2
	rm -f "$dir/still" "$dir/out" && : >"$dir/alive" && mkfifo "$dir/out"
	stdbuf -oL tr -d '\r' <"$dir/out" | tee "$dir/log" &
	reader=$!
	qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m "$memory" -snapshot \
		-nodefaults -no-reboot -display none -serial stdio -serial "file:$dir/alive" \
		-kernel "$(compgen -G "$kernel/boot/vmlinuz-*" | head -n 1)" \
		-append "console=ttyS0 quiet loglevel=1 panic=-1 mitigations=off cgroup_no_v1=all $arguments" "$@" </dev/null >"$dir/out" &
	machine=$!
	while kill -0 "$machine" 2>/dev/null; do
		sleep 0.5
		[ $((SECONDS - began)) -lt 1500 ] || stop # of both
		[ $(($(date +%s) - $(stat -c %Y "$dir/alive"))) -lt 300 ] || { touch "$dir/still" && stop; }
	done
	wait "$machine" "$reader" || true
	machine=
}

# What a machine does beside the tests.
alive='(while :; do echo . >/dev/ttyS1; sleep 5; done) &'

# The disk is a copy, and gone afterwards.
with_systemd() { # SCRIPT PACKAGE…
	local script=$1 package name
	shift
	mkfs.ext4 -q -F -d "$system" "$dir/disk" 2G >/dev/null
	cp "$script" "$dir/script"
	cat >"$dir/vm" <<END
#!/bin/sh
exec >/dev/ttyS0 2>&1
$alive
export PENSTOCK_TEST_VM=systemd PENSTOCK_TEST_CROWD=12
systemctl start dbus.service systemd-logind.service
/script
echo "vm: exit \$?"
poweroff -f
END
	printf 'mkdir tests\n' >"$dir/commands"
	put() { printf 'write %s %s\nsif %s mode 0100755\n' "$dir/$1" "$2" "$2" >>"$dir/commands"; }
	for package in "$@"; do
		name=$(basename "$(go list "$package")")
		if [ "$(go list -f '{{.Name}}' "$package")" = main ]; then
			CGO_ENABLED=0 go build -o "$dir/$name" "$package"
		else
			name=$name.test
			CGO_ENABLED=0 go test -c -o "$dir/$name" "$package"
		fi
		put "$name" "tests/$name"
	done
	put script script
	put vm vm
	debugfs -w -f "$dir/commands" "$dir/disk" >/dev/null 2>"$dir/said" || { cat "$dir/said" >&2; exit 1; }
	boot 2048 "root=/dev/nvme0n1 rw rootfstype=ext4 init=/lib/systemd/systemd systemd.run=/vm systemd.show_status=no" \
		-drive "file=$dir/disk,format=raw,if=none,id=disk,cache=unsafe" -device nvme,drive=disk,serial=disk
}
[ -z "$system" ] || with_systemd "$@"

package=$1
shift
root=$dir/root
mkdir -p "$root"/{proc,sys,dev,tmp,run,etc,var,home,root,bin,lib/modules}
CGO_ENABLED=0 go test -c -o "$root/test" "$package"

# Programs of the host, with the libraries that they are linked to.
copy() {
	local path lib
	path=$(command -v "$1") || return 0
	path=$(readlink -f "$path")
	cp "$path" "$root/bin/$1"
	{ ldd "$path" 2>/dev/null || true; } | grep -o '/[^ ]*' | while read -r lib; do
		[ -e "$root$lib" ] || { mkdir -p "$root$(dirname "$lib")" && cp -L "$lib" "$root$lib"; }
	done
}
for program in sh mount mkdir chroot setsid sleep insmod poweroff cat head tail id mkfs.ext4 setpriv; do
	copy "$program"
done
for module in loop quota_tree quota_v2; do # in the order in which they need each other
	find "$kernel/lib/modules" -name "$module.ko" -exec cp {} "$root/lib/modules" \;
done
printf 'root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"

quoted=$(printf ' %q' -test.v "$@")
cat >"$root/init" <<END
#!/bin/sh
export PATH=/bin HOME=/root TMPDIR=/tmp PENSTOCK_TEST_VM=bare PENSTOCK_TEST_CROWD=12
mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t devtmpfs dev /dev && mount -t tmpfs tmp /tmp &&
	mount -t cgroup2 cgroup /sys/fs/cgroup && mkdir -p /dev/shm && mount -t tmpfs shm /dev/shm
$alive
for module in loop quota_tree quota_v2; do insmod /lib/modules/\$module.ko; done
cd /tmp
/test$quoted
echo "vm: exit \$?"
poweroff -f -n 2>/dev/null || echo o >/proc/sysrq-trigger
sleep 60
END
chmod 755 "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc -R 0:0) >"$dir/initramfs"

boot 1024 "" -initrd "$dir/initramfs"
