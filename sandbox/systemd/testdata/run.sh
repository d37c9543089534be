#!/bin/bash
# Runs the tests as root, under the system's manager, and as a user under his
# own. What they say is in /out.
exec >/out/log 2>&1
export PENSTOCK_TEST_REQUIRE=systemd
systemctl --version
systemctl start dbus.service systemd-logind.service
loginctl enable-linger tester
for _ in $(seq 200); do
	[ -S /run/user/1234/bus ] && break
	sleep 0.1
done
as() { # WHO PATTERN
	local command=(/penstock.test -test.v -test.short "-test.run=$2")
	[ "$1" = root ] || command=(runuser -u "$1" -- env HOME=/home/tester "${command[@]}")
	cd / && "${command[@]}" >>"/out/$1.txt" 2>&1
}
for who in root tester; do as "$who" '^Test(Attacks|Compatible|Activity|Kill|OddPaths|NothingSecretIsSeen|StopDuringTheStart|PortsAndDial|UnitsOfTheDeadAreEnded)$' & done
wait
# Each looks for what is left of anybody's dead programs.
for who in root tester; do as "$who" '^TestRunnerKilled$'; done
touch /out/complete
