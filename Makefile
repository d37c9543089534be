# Penstock's targets. Bare `make` lists them.

GO       ?= go
PKGS     ?= ./...
COUNT    ?= 10
FUZZTIME ?= 20s
BENCH    ?= Latency|Jobs|Events|Reads|Workspace|Start$$|Others$$|Idle$$
BENCHTIME ?= 3s
SOAK     ?= 60m
JOBS     ?= 100000
WORKERS  ?= 1000
SLOTS    ?= 20
AGENTS   ?= 100
SESSIONS ?= 1000
REAL     ?= 20
RATE     ?= 5
DURATION ?= 6m
QUEUED   ?= 100000
FINISHED ?= 100000
# Tests that need more than Go (a jail, git, an agent) skip where it is absent;
# those named here fail instead: make test REQUIRE=bwrap,git
REQUIRE  ?= $(PENSTOCK_TEST_REQUIRE)

# Works without tags and outside a git checkout.
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT   ?= $(shell git rev-parse HEAD 2>/dev/null)
DATE     ?= $(shell TZ=UTC0 git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null)
LDFLAGS   = -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)
TARGETS   = linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
# Every system and every processor once: no file is for darwin/amd64 alone, and a release
# builds it too. Compiling all for one more takes minutes.
CROSSED   = $(filter-out darwin/amd64,$(TARGETS))
# The program has no Windows version; what others import alone compiles there.
LIBRARIES = ./jobs/... ./sandbox/... ./metrics/...

# What docs/explanation/benchmarks.md tells of.
MEASURED  = ./cmd/penstock ./worker/workspace ./sandbox/bwrap

# The longest first, since go test starts packages in the order in which they are
# named, and the last one alone would be waited for. Tests wait as much as they
# compute, so each of the packages at once has more tests at once than processors. More of
# both makes them no faster, and tests with leases, slow ways and emulated machines late.
LONG      = ./worker/agent/contract ./worker/workspace ./cmd/penstock ./sandbox/systemd ./sandbox/oci ./worker ./worker/agent/internal/opencode ./worker/agent/internal/gemini ./cmd/internal/site ./sandbox/bwrap ./cmd/internal/chaos ./sandbox ./worker/agent/internal/claude ./worker/agent/internal/codex ./dispatcher/natsd ./jobs/queue ./sandbox/internal/cgroup
TESTED    = $(if $(filter ./...,$(PKGS)),$(LONG)) $(PKGS)
ATONCE   ?= $(shell getconf _NPROCESSORS_ONLN)
PARALLEL ?= $(shell expr 3 '*' "$$(getconf _NPROCESSORS_ONLN)" / 2)

TOOL      = $(GO) tool -modfile=deploy/tools/go.mod
REPORT    = PENSTOCK_TEST_REQUIRE=$(REQUIRE) $(GO) run ./cmd/internal/repo/testreport

.DEFAULT_GOAL := help
.PHONY: help build packages release docs try-packages try-reboot try-release try-source images try-images try-compose try-kubernetes try-upgrade chart test race stress fuzz lint fmt generate tidy cross check dev demo bench bench-fleet bench-run bench-scale bench-peers bench-throttled bench-live soak

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

build: ## build bin/penstock
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/penstock ./cmd/penstock

test: ## run every test this machine can run; say which were skipped, and why
	@$(REPORT) -p=$(ATONCE) -parallel=$(PARALLEL) -timeout=60m $(TESTED)

# The race detector needs C.
race stress: export CGO_ENABLED = 1
race: ## the same under the race detector
	@$(REPORT) -race -p=$(ATONCE) -parallel=$(PARALLEL) -timeout=60m $(TESTED)

stress: ## the same, COUNT times over, under the race detector
	@$(REPORT) -race -count=$(COUNT) -p=$(ATONCE) -parallel=$(PARALLEL) -timeout=60m $(TESTED)

fuzz: ## run every fuzz target for FUZZTIME
	@deploy/tools/fuzz.sh $(FUZZTIME)

bench: ## measure the way of a job and print a table (BENCH, BENCHTIME, PKGS)
	@deploy/tools/bench.sh '$(BENCH)' $(BENCHTIME) $(if $(filter ./...,$(PKGS)),$(MEASURED),$(PKGS))

soak: build ## keep a pool under load for SOAK, in three runs over one data directory, and fail if anything grows; writes bin/soak.svg
	$(GO) run ./cmd/internal/soak -program bin/penstock -for $(SOAK) -plot bin/soak.svg

bench-run: build ## take JOBS jobs through a pool with scripted workers, and fail if it slows down; writes bin/run.svg (RUN: more flags)
	$(GO) run ./cmd/internal/fleet -program bin/penstock -jobs $(JOBS) -plot bin/run.svg $(RUN)

bench-fleet: build ## keep WORKERS scripted workers with SLOTS slots each busy with jobs of 20 s, four for each worker (FLEET: more flags)
	$(GO) run ./cmd/internal/fleet -program bin/penstock -workers $(WORKERS) -slots $(SLOTS) -jobs $$(($(WORKERS) * 4)) -open $$(($(WORKERS) * 4)) -work 20s -lease 60s $(FLEET)

bench-throttled: build ## let AGENTS agents, REAL of them Claude Code, make calls for DURATION on an API that allows RATE a second, and fail if these are not used; writes bin/throttled.svg (THROTTLED: more flags)
	$(GO) run ./cmd/internal/throttled -program bin/penstock -agents $(AGENTS) -real $(REAL) -rate $(RATE) -for $(DURATION) -quota 2m -plot bin/throttled.svg $(THROTTLED)

bench-live: build ## keep SESSIONS sessions in jails live at once in one process, and fail if anything of them is lost (LIVE: more flags)
	$(GO) run ./cmd/internal/live -program bin/penstock -sessions $(SESSIONS) $(LIVE)

bench-scale: ## measure the leader with many jobs: memory, and how long it is away when it is killed (QUEUED, FINISHED)
	@PENSTOCK_BENCH_QUEUED=$(QUEUED) PENSTOCK_BENCH_FINISHED=$(FINISHED) deploy/tools/bench.sh Leader 1x ./cmd/penstock

bench-peers: ## measure the queue beside asynq and River, where Redis and PostgreSQL are installed (PEERS: its flags)
	cd deploy/benchpeers && $(GO) vet ./... && $(GO) run . $(PEERS)

lint: ## gofmt, go vet, the linters of .golangci.yml, and actionlint for the workflows
	@bad="$$(gofmt -l .)"; if [ -n "$$bad" ]; then echo "not formatted; run 'make fmt':"; echo "$$bad"; exit 1; fi
	$(GO) vet $(PKGS)
	$(TOOL) golangci-lint run $(PKGS)
	$(GO) tool -modfile=deploy/tools/actionlint/go.mod actionlint

fmt: ## format the source
	gofmt -w .

generate: ## run go generate and rewrite the golden files; review the difference
	$(GO) generate $(PKGS)
	@deploy/tools/golden.sh

packages: build ## make Debian, RPM and Alpine packages in bin/packages
	@deploy/packages/build.sh bin/penstock '$(VERSION)' bin/packages

docs: build ## write the documentation as a static site in bin/docs, and check its links, headings and pages
	@rm -rf bin/docs
	bin/penstock docs --write bin/docs
	$(GO) test -count=1 ./cmd/internal/site

release: ## make all files of a release in bin/release: archives, packages, bills of materials, checksums
	@rm -rf bin/release && VERSION='$(VERSION)' COMMIT='$(COMMIT)' DATE='$(DATE)' TARGETS='$(TARGETS)' deploy/release/build.sh bin/release

try-release: ## make the release of HEAD for linux/amd64 twice, in different places, and compare
	@deploy/release/try.sh

try-packages: build ## install, upgrade, remove and purge the Debian package in a system that is booted for it; needs root
	@deploy/packages/try.sh bin/penstock

images: build ## make the images of server and worker in bin/images; needs mmdebstrap and jq
	@deploy/images/build.sh bin/penstock '$(VERSION)' bin/images

try-images: build ## make the images twice, compare them, and run a job in a jail in the worker's; needs docker
	@deploy/images/try.sh bin/penstock

chart: ## lint the Helm chart, check what it renders, and that deploy/k8s is that (UPDATE=1 writes it)
	cd deploy/helm && $(GO) vet ./... && $(GO) test -count=1 . $(if $(UPDATE),-write)

try-compose: build ## run jobs in the pools of deploy/compose, and kill one of three brokers; needs docker with compose
	@deploy/compose/try.sh bin/penstock

try-kubernetes: ## apply the chart and deploy/k8s to an API server of Kubernetes, which is built the first time
	@deploy/k8s/try/try.sh

try-reboot: build ## reboot a host with server and worker as services, and let it lose power, in the middle of a batch; needs root
	@deploy/systemd/try-reboot.sh bin/penstock

try-source: ## clone HEAD in a Debian that has only git, make and Go, and run the demo there; needs root
	@deploy/tools/try-source.sh

try-upgrade: ## run this release and the one before, which deploy/previous names, as parts of one pool, with faults and changes of the release
	PENSTOCK_TEST_REQUIRE=bwrap,git,history $(GO) test -count=1 -timeout 20m -v -run 'TestReleasesWorkTogether|TestARollingRestart' ./cmd/penstock

tidy: ## tidy the modules of the product and of the tools
	$(GO) mod tidy
	cd deploy/tools && $(GO) mod tidy
	cd deploy/tools/actionlint && $(GO) mod tidy
	cd deploy/packages && $(GO) mod tidy
	cd deploy/helm && $(GO) mod tidy
	cd deploy/release && $(GO) mod tidy

cross: ## compile for every supported system; tests too, where agents run
	@set -e; for target in $(CROSSED); do \
		echo "build $$target"; \
		GOOS=$${target%/*} GOARCH=$${target#*/} CGO_ENABLED=0 $(GO) build -buildvcs=false ./...; \
	done
	@echo "build without the export of traces"; CGO_ENABLED=0 $(GO) build -buildvcs=false -tags nootel -o /dev/null ./cmd/penstock
	@echo "build windows/amd64: $(LIBRARIES)"; GOOS=windows GOARCH=amd64 CGO_ENABLED=0 $(GO) build -buildvcs=false $(LIBRARIES)
	@set -e; for target in linux/amd64 darwin/arm64; do \
		echo "vet   $$target"; \
		GOOS=$${target%/*} GOARCH=$${target#*/} CGO_ENABLED=0 $(GO) vet ./...; \
	done
	@echo "vet   without the export of traces"; $(GO) vet -tags nootel ./traces ./cmd/internal/pool ./cmd/penstock

check: tidy lint cross race ## all that a change must pass

dev: build ## run a pool with its data under bin/dev: broker, dispatcher and a worker with two slots
	bin/penstock serve --data bin/dev --slots 2

demo: ## work through 100 issues of a demo repository in parallel, in jails
	@deploy/demo/run.sh
