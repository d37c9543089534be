#!/usr/bin/env bash
# Prints the seccomp profile of a worker in a container: docker's default profile, and one
# rule more, without which bubblewrap can make no jail. The default allows these calls with
# CAP_SYS_ADMIN only; inside a user namespace, where a jail is made, the kernel itself says
# who may make them.
#
#   deploy/images/seccomp.sh >deploy/images/seccomp.json
#
# The default profile is that of the module below, (c) the Moby authors, Apache License 2.0.
set -euo pipefail
module=github.com/moby/profiles/seccomp@v0.3.0
sha256=6416b47770785a41ac59073cdc77d9fe98517df2799dc83ef207e622de3053f6

dir=$(cd / && go mod download -json "$module" | jq -r .Dir)
sha256sum --check --status <<<"$sha256  $dir/default.json" || {
	echo "seccomp.sh: default.json of $module is not the one that was read" >&2
	exit 1
}
jq --tab --arg from "$module, default.json, sha256 $sha256" '.syscalls += [{
	names: ["clone", "mount", "pivot_root", "sethostname", "umount2", "unshare"],
	action: "SCMP_ACT_ALLOW",
	comment: ("Jails of a worker. All other rules: " + $from)
}]' "$dir/default.json"
