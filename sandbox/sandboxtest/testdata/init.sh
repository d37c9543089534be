#!/bin/bash
# The first process of the container. Control groups are mounted read-only by
# nspawn where they are of version 1, and parts of /proc are covered, under
# which no process table could be mounted by a user.
for m in /sys/fs/cgroup/*; do mount -o remount,rw,bind "$m" 2>/dev/null; done
umount -R /proc/sys /proc/acpi /proc/bus /proc/fs /proc/irq /proc/kmsg 2>/dev/null
exec /lib/systemd/systemd "$@"
