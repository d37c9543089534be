#!/bin/sh
# Sees to it that programs are there: install.sh bwrap git
#
# Installs the system packages of those that are missing where it may (as root,
# or by sudo without a password). Where it may not, it prints the one line to
# run and fails.
set -eu

missing=
for program in "$@"; do
	command -v "$program" >/dev/null 2>&1 && continue
	case $program in
	bwrap) missing="$missing bubblewrap" ;;
	python3 | git | make | gcc) missing="$missing $program" ;;
	*) echo "install.sh: no package is known for the program $program" >&2; exit 2 ;;
	esac
done
[ -n "$missing" ] || exit 0

if command -v apt-get >/dev/null 2>&1; then
	line="apt-get update && apt-get install -y --no-install-recommends$missing"
elif command -v dnf >/dev/null 2>&1; then
	line="dnf install -y$missing"
elif command -v pacman >/dev/null 2>&1; then
	line="pacman -Sy --noconfirm --needed$missing"
elif command -v apk >/dev/null 2>&1; then
	line="apk add$missing"
elif command -v zypper >/dev/null 2>&1; then
	line="zypper --non-interactive install$missing"
else
	echo "missing:$missing; install that with your system's package manager, then try again" >&2
	exit 1
fi

as() { "$@"; }
if [ "$(id -u)" -ne 0 ]; then
	if ! command -v sudo >/dev/null 2>&1 || ! sudo -n true 2>/dev/null; then
		echo "missing:$missing; run this, then try again:" >&2
		echo "  sudo sh -c '$line'" >&2
		exit 1
	fi
	as() { sudo -n "$@"; }
fi
echo "installing$missing: $line" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! as env DEBIAN_FRONTEND=noninteractive sh -c "$line" >"$log" 2>&1 </dev/null; then
	cat "$log" >&2
	echo "could not install$missing; see above" >&2
	exit 1
fi
