#!/usr/bin/env bash
# try.sh: starts the API server of Kubernetes and etcd on loopback, and applies the chart and the
# manifests to them as a user does, with Helm and kubectl. No controller runs there, no node and
# no pod. All four programs are built from their modules, once for each version, into
# bin/kubernetes; the first time takes minutes and 3 GB of the Go build cache.
set -euo pipefail
cd "$(dirname "$0")"
version() { go list -m -f '{{.Version}}' "$1"; }
kubernetes=$(version k8s.io/kubernetes)
etcd=$(version go.etcd.io/etcd/server/v3)
helm=$(cd ../../helm && version helm.sh/helm/v4)
programs=$(cd ../../.. && pwd)/bin/kubernetes/$kubernetes-etcd-$etcd-helm-$helm

if [ ! -d "$programs" ]; then
	echo "try.sh: building Kubernetes $kubernetes, etcd $etcd and Helm $helm" >&2
	export CGO_ENABLED=0
	rm -rf "$programs.new"
	# The number by which clients, as Helm, know what the server can do.
	minor=${kubernetes#v1.}
	stamp="-X k8s.io/component-base/version.gitVersion=$kubernetes -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=${minor%%.*}"
	go build -trimpath -ldflags "-s -w $stamp" -o "$programs.new/" k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kubectl
	go build -trimpath -ldflags '-s -w' -o "$programs.new/etcd" go.etcd.io/etcd/server/v3
	(cd ../../helm && go build -trimpath -ldflags '-s -w' -o "$programs.new/" helm.sh/helm/v4/cmd/helm)
	mv "$programs.new" "$programs"
fi
go vet .
go test -count=1 -timeout 20m . -programs "$programs" "$@"
