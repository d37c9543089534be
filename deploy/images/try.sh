#!/usr/bin/env bash
# try.sh PROGRAM: builds the images twice and compares them, and runs a job in a jail in the
# worker's image, as a user without any capability, under the seccomp profile. Without the
# profile there must be no jail. Then it builds the agents' image, on a base that it makes
# itself, and runs jobs of its agents, whose model is a script. Needs docker, Go, npm, and what
# build.sh needs.
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

# A base as node:24-bookworm-slim is, without a registry for images: Debian, and what npm has of
# node. It trusts what this host trusts, which may be behind a proxy.
npm install --prefix "$out/npm" --no-audit --no-fund --no-save node@24 npm@11
local=$out/base/usr/local
mkdir -p "$local/bin" "$local/lib/node_modules" "$out/base/etc/ssl/certs"
install -m 755 "$out/npm/node_modules/node/bin/node" "$local/bin/node"
cp -r "$out/npm/node_modules/npm" "$local/lib/node_modules/npm"
ln -s ../lib/node_modules/npm/bin/npm-cli.js "$local/bin/npm"
cp /etc/ssl/certs/ca-certificates.crt "$out/base/etc/ssl/certs/"
tar -C "$out/base" --owner=0 --group=0 -cf "$out/node.tar" ./usr ./etc
mmdebstrap --quiet --variant=minbase --include=ca-certificates --customize-hook="tar-in $out/node.tar /" bookworm "$out/base.tar"
docker import --change 'ENV NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt' "$out/base.tar" penstock/node:try
# The versions that the tests of the agents are for.
agents=$(grep -oE '@(anthropic-ai/claude-code|openai/codex|google/gemini-cli)@[0-9.]+' ../../.ci/run | tr '\n' ' ')
mkdir "$out/context"
docker build --network host --build-arg BASE=penstock/node:try --build-arg "AGENTS=$agents" \
	--tag penstock/agents:try --file agents.Dockerfile "$out/context"
PENSTOCK_TEST_AGENTS_IMAGE=penstock/agents:try go test -count=1 -run '^TestAgentsOfTheImage$' -v ../../cmd/penstock
