#!/usr/bin/env bash
# Makes what compose.yaml reads from secrets/, as far as it is not there: an authority, the
# server's certificate, and credentials of the bus, whose public halves go into the server's
# volume. secrets.sh cluster makes accounts.conf for compose.cluster.yaml from these as well.
#
# Containers read the files as user 10001, so they are open to all, in a directory that only
# its owner may enter. ca.key signs certificates and is in no container: keep it elsewhere.
set -euo pipefail
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
cd secrets

if [ ! -e ca.crt ]; then
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=Penstock" -keyout ca.key -out ca.crt \
		-addext basicConstraints=critical,CA:TRUE,pathlen:0 -addext keyUsage=critical,keyCertSign,cRLSign 2>/dev/null
fi
if [ ! -e server.crt ]; then
	openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=penstock" -keyout server.key -out server.csr 2>/dev/null
	openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 825 -out server.crt -extfile - 2>/dev/null <<-END
		subjectAltName=DNS:serve,DNS:broker-1,DNS:broker-2,DNS:broker-3,DNS:localhost,IP:127.0.0.1
		extendedKeyUsage=serverAuth,clientAuth
	END
	rm server.csr
fi
[ -e grafana.password ] || openssl rand -hex 16 >grafana.password
touch worker.creds operator.creds accounts.conf # compose reads them before they are made
# The command runs in the server's image, on the server's volume.
penstock() { docker compose run --rm --no-deps --quiet-pull -T serve "$@"; }
for role in worker operator; do
	[ -s "$role.creds" ] || penstock nats credentials "$role" --name "compose-$role" >"$role.creds"
done
[ "${1:-}" != cluster ] || penstock nats credentials config >accounts.conf
chmod 644 -- *.crt *.creds *.password accounts.conf server.key
