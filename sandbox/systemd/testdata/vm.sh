#!/bin/bash
# Runs in an emulated machine with control groups of version 2, started by vm.sh:
# limits that a user has only there.
loginctl enable-linger tester
for _ in $(seq 600); do
	[ -S /run/user/1234/bus ] && break
	sleep 0.1
done
code=0
in_session() { # COMMAND…: as a user who has logged in
	su - tester -c "$(printf ' %q' "$@")"
}
as() { # WHO PROGRAM PATTERN
	local command=(timeout -k 9 600 env PENSTOCK_TEST_VM=systemd PENSTOCK_TEST_CROWD=12 PENSTOCK_TEST_REQUIRE=systemd,bwrap "/tests/$2.test" -test.v -test.short "-test.run=$3")
	[ "$1" = root ] || command=(in_session "${command[@]}")
	echo "=== as $1: $2"
	cd / && "${command[@]}" || code=1
}
as tester cgroup '^TestDelegatedLimits$|^TestTheScopeEndsWithItsLast$'
# A service to which its unit delegates its group moves itself into a leaf of it.
echo "=== as a service: cgroup"
said=$(cd / && systemd-run --quiet --wait --pipe -p Delegate=yes -p User=tester -p KillMode=mixed \
	-E PENSTOCK_TEST_VM=systemd -E PENSTOCK_TEST_DELEGATE=1 /tests/cgroup.test -test.v '-test.run=^Test(AGroupHolds|MemoryIsLimited|ProcessesAreLimited)' 2>&1) || code=1
passed=$(grep -c -e '^--- PASS' <<<"$said")
if [ "$passed" -eq 3 ]; then echo "--- PASS: DelegatedService"; else
	echo "--- FAIL: DelegatedService: $passed of 3 tests pass"
	echo "$said"
	code=1
fi
as tester systemd '^TestAttacks$/(use-all|fork-until|fork-without)'
as root systemd '^TestAttacks$/(use-all|fork-until|fork-without)'

# A user's worker asks for what it needs. In a group one process is killed; a
# watched jail would be.
penstock() { in_session timeout -k 9 300 /tests/penstock "$@"; }
expect() { # NAME TEXT: is in what was said
	if grep -qF "$2" <<<"$said"; then echo "--- PASS: $1"; else
		echo "--- FAIL: $1"
		echo "$said"
		code=1
	fi
}
echo "=== as tester: penstock"
in_session sh -c 'git init -q ~/repo && cd ~/repo && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x'
said=$(penstock doctor 2>&1)
expect DoctorAsks "were limited; the groups are those of the user's service manager"
said=$(runuser -u tester -- env HOME=/home/tester /tests/penstock doctor 2>&1)
expect AServiceIsNotMoved "is not the session of a login"
said=$(penstock run --backend bwrap --repo /home/tester/repo --memory 64MiB -o json -- \
	sh -c 'head -c 300000000 /dev/zero | tail -c 299000000; echo goes on' 2>&1)
expect OneProcessIsKilled '"text":"goes on"'
expect TheLimitIsNamed '"kind":"limit","setting":"memory"'
exit "$code"
