# Everything from a fresh clone: `make demo`, `make test`. Each target makes ready what it needs and
# leaves alone what is ready.
SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
DEMO_MODELS := scripted/careful,scripted/text-only,scripted/careless,scripted/pickle-crash,scripted/undeclared-import
DEMO_RUNS := 1

.PHONY: help
help: ## what there is to make
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1	\2/p' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## .venv from requirements.lock
	@scripts/setup

.PHONY: engine
engine: ## a container engine that answers
	@scripts/engine

.PHONY: images
images: setup engine ## the images that runs need
	@$(BIN)/orch images build

.PHONY: demo
demo: images ## a trial of scripted models, and its report
	@DEMO_MODELS=$(DEMO_MODELS) DEMO_RUNS=$(DEMO_RUNS) scripts/demo

.PHONY: test
# Most engine tests wait for the engine: two at once take two thirds of the time. A file stays with
# one worker, so that what its tests share is made once.
test: images ## unit and engine tests
	@$(BIN)/pytest -m "not soak" -n 2 --dist loadfile

.PHONY: soak
soak: images ## the long tests
	@$(BIN)/pytest -m soak

.PHONY: bench
bench: images ## what gateway, records, environments, scores and seeding cost, against the bare work
	@$(BIN)/python benchmarks/gateway.py
	@$(BIN)/python benchmarks/records.py
	@$(BIN)/python benchmarks/environment.py
	@$(BIN)/python benchmarks/score.py
	@$(BIN)/python benchmarks/seed.py

.PHONY: check
check: setup ## formatting, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: lock
lock: setup ## renew the locks (scripts/lock --upgrade: newer versions)
	@scripts/lock
