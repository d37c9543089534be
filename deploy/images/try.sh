#!/usr/bin/env bash
# try.sh PROGRAM: builds the images twice and compares them, and runs a job in a jail in the
# worker's image, as a user without any capability, under the seccomp profile. Without the
# profile there must be no jail. Needs docker, and what build.sh needs.
set -euo pipefail
program=$(realpath "$1")
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

for time in first second; do FRESH=1 ./build.sh "$program" try "$out/$time"; done
cmp "$out/first/penstock-server.tar" "$out/second/penstock-server.tar"
cmp "$out/first/penstock-worker.tar" "$out/second/penstock-worker.tar"
echo "built twice: the same"

for image in server worker; do docker load --quiet --input "$out/first/penstock-$image.tar"; done
worker() {
	docker run --rm --network none --user 10001:10001 --read-only --tmpfs /tmp --cap-drop ALL \
		--security-opt no-new-privileges "$@"
}
# shellcheck disable=SC2016 # the container's shells have these variables
job='git init -q /tmp/repo && cd /tmp/repo && git -c user.name=t -c user.email=t@example.com commit -q --allow-empty -m first &&
	penstock run --backend bwrap -o json -- sh -c "id -u; grep -E \"^(CapEff|NoNewPrivs|Seccomp):\" /proc/self/status; ls -A /var/lib; echo made >made.txt"'
worker --security-opt systempaths=unconfined --security-opt seccomp=seccomp.json --entrypoint sh penstock/worker:try -c "$job" >"$out/result"
# What the jail's processes are is an event each; the result comes last. No limit of
# processors can be set in a container to which no control group is delegated.
jq -r 'select(.kind == "output.line").data.text' "$out/result"
jq -es 'map(select(.kind == "output.line").data.text) as $said | last |
	.outcome == "success" and .files_changed == 1 and .backend == "bwrap" and (.weaker // []) - ["cpu"] == [] and
	($said | contains(["CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"]))' "$out/result"
if worker --entrypoint sh penstock/worker:try -c "$job" >/dev/null 2>"$out/refused"; then
	echo "try.sh: a jail was made without the profile: it is needed no more" >&2
	exit 1
fi
tail -n 3 "$out/refused"
docker run --rm --network none --read-only --cap-drop ALL --security-opt no-new-privileges penstock/server:try version
