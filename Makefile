# Everything a person runs. The environment (.venv) is made on first use and re-used while constraints and pyproject stay the same.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
XDIST ?= 2

.PHONY: help demo test check lint types unit scenarios test-gcloud test-root bench sim mutants clean env

help: ## print this menu
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "make: Python 3.11 is needed as $(PYTHON) (set PYTHON=…)" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "making the environment in $(VENV)"; $(PYTHON) -m venv $(VENV); }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[demo,dev]'
	@touch $@

env: $(STAMP) ## make the environment

demo: $(STAMP) ## train on the emulator, lose a slice, resume (KEEP=1 leaves it up)
	$(BIN)/python configs/demo/demo.py $(if $(KEEP),--keep)

test: check scenarios test-gcloud ## everything: check, then scenarios, then gcloud where it is on PATH

check: lint types unit ## lint, types, layers, unit tests (under 90 s)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: $(STAMP)
	$(BIN)/mypy

unit: $(STAMP)
	$(BIN)/python -m pytest -q -n $(XDIST) -m "not slow and not scenario and not gcloud and not root"

scenarios: $(STAMP) ## searches, then whole stories on the emulator with real processes
	$(BIN)/python -m pytest -q -n $(XDIST) --dist loadfile -m "slow or scenario" --ignore tests/scenarios --timeout 400
	$(BIN)/python -m pytest -q -m scenario --timeout 400 tests/scenarios

test-gcloud: $(STAMP) ## the real gcloud against the emulator
	@if command -v gcloud >/dev/null; then $(BIN)/python -m pytest -q -m gcloud; \
	else echo "test-gcloud: left out, gcloud is not on PATH"; fi

test-root: $(STAMP) ## what only root can test
	$(BIN)/python -m pytest -q -m root

bench: $(STAMP) ## performance as ratios (tests/bench)
	$(BIN)/python -m tests.bench

sim: $(STAMP) ## random histories of a fleet, as many as HISTORIES=20000 says
	TPUCTL_TEST_HISTORIES=$(or $(HISTORIES),20000) $(BIN)/python -m pytest -q -s --timeout 0 tests/fleet/test_histories.py

mutants: $(STAMP) ## plant bugs one at a time; each must be caught
	$(BIN)/python -m tests.mutants

clean: ## remove the environment and caches
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .demo
