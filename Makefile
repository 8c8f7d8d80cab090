# Everything a developer runs. `make` alone prints this list.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# docker compose is a plugin on newer machines and a program of its own on older ones.
COMPOSE := $(shell docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose)

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  \033[36m%-14s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## compile the program into bin/berth
	go build -trimpath -o bin/berth ./cmd/berth

.PHONY: test
test: ## run the tests with what this machine has; prints what it could not test
	go test ./...

.PHONY: race
race: ## run the tests under the race detector
	go test -race ./...

.PHONY: lint
lint: ## check the format, go vet and the linters of .golangci.yml
	@.ci/lint

.PHONY: demo
demo: ## see the main job: a recorded hour of traffic with a join, a kill and a drain
	go run ./cmd/berth demo

.PHONY: bench
bench: ## measure the ring and decisions beside the code, then /route against a bare handler
	go test -run '^$$' -bench . -benchmem ./routing/...
	go run ./cmd/berth bench route

.PHONY: scoreboard
scoreboard: ## measure the ring beside the libraries people would pick instead; takes minutes (ARGS=--json)
	cd routing/scoreboard && go run . $(ARGS)

.PHONY: images
images: ## build the images berth:dev and, where the Redis image is lacking, that one too
	@.ci/images

.PHONY: compose-up
compose-up: images ## start Redis, two Berths and three simulated workers
	$(COMPOSE) up -d

.PHONY: compose-down
compose-down: ## stop them and remove their data
	$(COMPOSE) down --volumes

.PHONY: ci
ci: ## run what CI runs
	bash .ci/run
