#!/bin/bash
# Runs the tests about the end of jobs in a container that was booted with systemd.
exec >/out/log 2>&1
systemctl start dbus.service
export PENSTOCK_TEST_REQUIRE=bwrap HOME=/root
cd / && /penstock.test -test.v '-test.run=^Test(FinishedMeansThatNothingLives|AWorkerSweepsItsOwn(Pool|Units))$'
