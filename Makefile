# The one test command is: make test

# The race detector needs a C compiler.
RACE      := $(if $(shell command -v "$$(go env CC)"),-race)
# Many tests wait for servers, disks and clocks, so there are more packages at once than
# cores; those that take longest come first.
PACKAGES  ?= ./integration/file ./integration/postgres ./wal ./integration/redis ./...
GOTEST    ?= $(RACE) -count=1 -timeout 30m -p $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1))) $(PACKAGES)
FUZZTIME  ?= 20s
BUDGET    ?= 1h
SEED      ?= 1
BENCH     ?= .
LINTER    ?= go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.DEFAULT_GOAL := help
.PHONY: help build test campaign lint fuzz bench bench-check cover images clean

help: ## what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## the command, into bin/
	go build -o bin/ ./cmd/...

test: ## vet, lint and all tests, with servers from Docker or local binaries as far as there are
	@$(if $(RACE),,echo "no C compiler: without the race detector")
	@integration/images/ensure
	@go run ./tools/testsum -also 'go vet -tags crashpoints,plant ./...' -also '$(LINTER) run ./...' -- $(GOTEST)

lint: ## golangci-lint, in the version that LINTER names
	$(LINTER) run ./...

fuzz: ## every fuzz target for FUZZTIME (20s)
	@go test -list '^Fuzz' ./... | awk '/^Fuzz/ { f[n++] = $$1 } /^ok/ { for (i = 0; i < n; i++) print $$2, f[i]; n = 0 }' | \
	while read -r pkg target; do \
		echo "$$pkg $$target"; \
		go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$pkg" </dev/null || exit 1; \
	done

campaign: ## the long forms of the tests for BUDGET (1h) from SEED (1); run again, it goes on
	@integration/images/ensure
	@go run ./tools/campaign -budget $(BUDGET) -seed $(SEED)

bench: ## benchmarks that have a goal, each beside its baseline, into docs/benchmarks.md
	go run ./tools/bench -only '$(BENCH)'

bench-check: ## the same, compared with docs/benchmarks.md
	go run ./tools/bench -check -only '$(BENCH)'

cover: ## coverage of all tests, into out/
	@mkdir -p out
	go test -coverpkg=./... -coverprofile=out/cover.out ./...
	@go tool cover -func=out/cover.out | tail -n 1
	go tool cover -html=out/cover.out -o out/cover.html

images: ## images for the integration tests from Debian packages, where no registry can be reached
	integration/images/build

clean: ## what the targets above have made
	rm -rf bin out
