#!/usr/bin/env bash
# try.sh: runs the pools of compose.yaml and compose.cluster.yaml as they are, with images built
# for that and secrets made for that, and jobs in both; a broker of three is killed while jobs
# run, and no job is lost. Needs docker with compose 2.24 or newer, and what ../images/build.sh
# needs. Prometheus and Grafana run only where docker has their images.
#
#   deploy/compose/try.sh bin/penstock
set -euo pipefail
program=$(realpath "$1")
work=$(mktemp -d)
cp -r "$(dirname "$0")/.." "$work/deploy"
cd "$work/deploy/compose"
rm -rf secrets worker.env
export COMPOSE_PROJECT_NAME=penstock-try-$$ PENSTOCK_SERVER_IMAGE=penstock/server:try PENSTOCK_WORKER_IMAGE=penstock/worker:try
# Ports that the host has free.
export PENSTOCK_HTTP_PORT=0 PENSTOCK_PROMETHEUS_PORT=0 PENSTOCK_GRAFANA_PORT=0

compose() { docker compose --progress plain "$@"; }
penstock() { compose exec -T serve penstock "$@"; }
finish() {
	local code=$?
	[ "$code" = 0 ] || compose logs --tail 30 || true
	compose --profile monitoring down --volumes --timeout 20 || code=1
	# Nothing may stay behind.
	local left
	left=$(docker ps -aq --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME"
		docker volume ls -q --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME")
	[ -z "$left" ] || { echo "try.sh: left behind: $left" >&2; code=1; }
	rm -rf "$work"
	exit "$code"
}
trap finish EXIT

../images/build.sh "$program" try "$work/images"
for image in server worker; do docker load --quiet --input "$work/images/penstock-$image.tar"; done

echo "=== one server"
./secrets.sh
compose up --detach --wait
job=$(penstock submit --isolation none -o id -- sh -c 'test "$(id -u)" != 0 && echo made')
penstock wait "$job"
if penstock run --progress quiet --isolation none --backend none -- true 2>"$work/refused" || ! grep policy_denied "$work/refused"; then
	echo "try.sh: a job ran without a jail" >&2
	exit 1
fi
for worker in $(compose ps --quiet worker); do
	if docker exec "$worker" sh -c 'grep -s "^State:.Z" /proc/[0-9]*/status'; then
		echo "try.sh: the worker's container keeps processes that have ended" >&2
		exit 1
	fi
done
# From the host, over HTTP, with a token.
penstock token add try --role submitter >"$work/token" 2>/dev/null
"$program" --server "https://$(compose port serve 8080 | sed 's/127.0.0.1/localhost/')" --tls-ca secrets/ca.crt --token-file "$work/token" \
	run --progress plain --isolation none -- true
# Containers that are made anew keep the pool: it is in volumes.
compose up --detach --wait --force-recreate
penstock job get "$job" -o json | jq -e '.state == "finished" and .outcome == "success"' >/dev/null
for service in prometheus grafana; do
	image=$(compose --profile monitoring config --format json | jq -r ".services.$service.image")
	if ! docker image inspect "$image" >/dev/null 2>&1; then
		echo "$service is left out: docker has no image $image"
	else
		compose --profile monitoring up --detach --wait --no-deps "$service"
	fi
done
if prometheus=$(compose --profile monitoring port prometheus 9090 2>/dev/null); then
	for query in 'count(up == 1) == 3' 'sum(penstock_workers) == 2' 'count(job_queue:penstock_queue_slots:max) > 0'; do
		tries=0
		until curl -fsS --get --data-urlencode "query=$query" "http://$prometheus/api/v1/query" | jq -e '.data.result | length == 1' >/dev/null; do
			tries=$((tries + 1))
			[ "$tries" -lt 60 ] || { echo "try.sh: Prometheus does not find that $query" >&2; exit 1; }
			sleep 1
		done
		echo "Prometheus: $query"
	done
fi
compose --profile monitoring down --volumes --timeout 20

echo "=== three brokers"
rm -r secrets
./secrets.sh cluster
export COMPOSE_FILE=compose.yaml:compose.cluster.yaml
compose up --detach --wait
penstock nats diff
jobs=()
submit() { jobs+=("$(penstock submit --isolation none -o id -- sh -c 'sleep 10; echo made')"); }
for _ in 1 2 3 4 5 6 7 8 9 10; do submit; done
penstock wait "${jobs[0]}" >/dev/null
before=$(date -u +%FT%TZ)
compose kill broker-1
after=$(date -u +%FT%TZ)
for _ in 1 2 3 4 5; do submit; done
penstock wait "${jobs[@]}"
penstock job ls -o json --limit 100 | jq -e --arg before "$before" --arg after "$after" 'any(.started < $before and .finished > $after)' >/dev/null || {
	echo "try.sh: no job ran when the broker was killed" >&2
	exit 1
}
penstock job ls -o json --limit 100 | jq -e --argjson want "${#jobs[@]}" 'length == $want and all(.outcome == "success")'
compose up --detach --wait
penstock nats diff
echo "a broker was killed, and all ${#jobs[@]} jobs ended in success"
