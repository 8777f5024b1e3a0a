# nf: what can be made. `make help` lists it.

# Tool versions, pinned here and nowhere else.
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOVULNCHECK   := golang.org/x/vuln/cmd/govulncheck@v1.1.4

GO    ?= go
PGRUN := $(GO) run ./runtime/pgdev/pgtest/pgrun
# The race detector needs a C compiler; make says so where there is none.
RACE  ?= $(shell command -v cc >/dev/null 2>&1 || command -v gcc >/dev/null 2>&1 && echo -race)
# Seconds that each fuzz target runs.
FUZZ  ?= 5

.DEFAULT_GOAL := help
.PHONY: help pg build demo test unit fuzz soak bench lint vuln verify fmt generate tidy clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

pg: ## find the Postgres server binaries, or install them
	@./scripts/pg.sh

build: ## build bin/nf
	$(GO) build -trimpath -o bin/nf ./cmd/nf

demo: pg build ## run the example end to end on a private Postgres, clean up, exit 0
	$(GO) run ./examples/orders/demo

test: pg unit fuzz ## all tests: real Postgres, race detector, each fuzz target for FUZZ seconds

unit: ## the tests without the fuzzing
	@test -n "$(RACE)" || echo "no C compiler: the race detector is off"
	$(PGRUN) $(GO) test $(RACE) -timeout 15m ./...

fuzz: ## each fuzz target for FUZZ seconds
	@GO="$(GO)" ./scripts/fuzz.sh $(FUZZ)

soak: pg ## long tests: kills, caps under race, fuzz targets for 60 s each
	$(PGRUN) $(GO) test $(RACE) -tags soak -run '^TestSoak' -p 1 -v -timeout 120m ./...
	@GO="$(GO)" ./scripts/fuzz.sh 60

bench: pg ## measure beside River and DBOS; writes bench/out/results.json
	cd bench && $(GO) test ./... && $(GO) run . -out out/results.json

lint: ## golangci-lint over both modules
	$(GO) run $(GOLANGCI_LINT) run ./...
	cd bench && $(GO) run $(GOLANGCI_LINT) run --config ../.golangci.yml ./...

vuln: ## known vulnerabilities of what is used
	$(GO) run $(GOVULNCHECK) ./...

fmt: ## format all Go files
	$(GO) run $(GOLANGCI_LINT) fmt ./...
	cd bench && $(GO) run $(GOLANGCI_LINT) fmt --config ../.golangci.yml ./...

generate: ## make generated files anew
	$(GO) generate ./...

tidy: ## make go.mod and go.sum say what is imported
	$(GO) mod tidy
	cd bench && $(GO) mod tidy

verify: generate fmt tidy ## generate, format, tidy; fails if that changed anything
	@./scripts/clean-tree.sh

clean: ## remove what was built
	rm -rf bin bench/out
