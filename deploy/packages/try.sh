#!/usr/bin/env bash
# try.sh PROGRAM: packages a program in two versions, and installs, upgrades, removes and
# purges the Debian package in a Debian 12 that it boots with systemd. Where rpm is installed,
# the RPM package is installed and removed in an empty root, without its scripts. It needs root, debootstrap and systemd-container.
set -euo pipefail
program=$(realpath "$1")
cd "$(dirname "$0")"
root=${XDG_CACHE_HOME:-$HOME/.cache}/penstock-ci/bookworm
../../sandbox/systemd/testdata/root.sh "$root"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for version in 0.0.1 0.0.2; do ./build.sh "$program" "v$version" "$out/$version"; done
if command -v rpm >/dev/null; then
	rpm -qpl "$out"/0.0.2/*.rpm
	mkdir "$out/rpm"
	rpm --root "$out/rpm" --initdb
	rpm --root "$out/rpm" -i --nodeps --noscripts "$out"/0.0.2/*.rpm
	"$out/rpm/usr/bin/penstock" version
	rpm --root "$out/rpm" -e --noscripts penstock
	left=$(find "$out/rpm" -path '*penstock*')
	[ -z "$left" ] || { echo "try.sh: a removed RPM package leaves $left"; exit 1; }
	echo "ok: the RPM package is installed, and leaves nothing when it is removed"
else
	echo "rpm is not installed: the RPM package is not tried"
fi
# Each module in the program has its licence in each package.
tar -xzf "$out"/0.0.2/*.apk -C "$out" --warning=no-unknown-keyword usr/share/licenses/penstock
dpkg-deb --fsys-tarfile "$out"/0.0.2/*.deb | tar -xO ./usr/share/doc/penstock/copyright >"$out/copyright"
modules=$(go version -m "$program" | awk '$1 == "dep" { print $2 }')
for module in std $modules; do
	grep -q " $module@" "$out/copyright" && grep -q "^$module " "$out/usr/share/licenses/penstock/THIRD_PARTY_LICENSES.txt" ||
		{ echo "try.sh: the packages do not have the licence of $module"; exit 1; }
done
echo "ok: the packages have the licences of $(wc -w <<<"$modules") modules"
cp try-inside.sh ../../sandbox/sandboxtest/testdata/init.sh "$out"
# The kernel has to answer for what the jails try, not nspawn's own filter.
SYSTEMD_SECCOMP=0 systemd-nspawn --quiet --register=no --keep-unit --console=pipe --machine="penstock-packages-$$" \
	--directory="$root" --volatile=overlay --private-network --capability=all --bind="$out:/out" \
	/out/init.sh systemd.run=/out/try-inside.sh systemd.show_status=no >"$out/console" 2>&1 || true
cat "$out/log"
[ -e "$out/passed" ] || { cat "$out/console"; echo "try.sh: the packages do not work"; exit 1; }
