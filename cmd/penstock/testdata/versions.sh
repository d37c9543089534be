#!/bin/bash
# Runs versions of an agent, which are installed in /out/agents, in units of systemd.
exec >/out/log 2>&1
systemctl start dbus.service
# The container's root is an overlay of two file systems, which no workspace is made on.
mkdir /work && mount -t tmpfs tmpfs /work
export HOME=/root TMPDIR=/work PENSTOCK_TEST_AGENTS=/out/agents
cd / && /penstock.test -test.v '-test.run=^TestVersionsOfAnAgentAreUnits$'
