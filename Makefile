# `make run` and `make test` are all a newcomer needs: each sets up what it uses first.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := -m pip install --quiet --disable-pip-version-check

export PYRIGHT_PYTHON_IGNORE_WARNINGS = 1

.PHONY: help run test lint types unit bench docs format clean
.DELETE_ON_ERROR:

help: ## show this
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

run: .venv/.ready example ## start the bridge on servers.toml and show it work
	$(BIN)/python examples/show.py

test: lint types unit ## all that CI runs: format, lint, types, tests

lint: .venv/.ready
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .

types: .venv/.ready
	$(BIN)/pyright --pythonpath $(BIN)/python

unit: .venv/.ready example
	$(BIN)/pytest

bench: .venv/.ready ## measure, side by side with the floor relay and other bridges
	$(BIN)/python -m benchmarks

docs: .venv/.ready ## write anew what the docs say of the configuration
	$(BIN)/python scripts/reference.py

format: .venv/.ready ## put the code into its form
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --quiet --fix .

clean: ## remove everything that make has set up
	rm -rf .venv .venv-servers .venv-clients .bench examples/node_modules tests/clients/node/node_modules

# An environment is made anew when what it is made from changes. The stamp comes last, so that an interrupted
# installation does not count.

.venv/.ready: pyproject.toml
	@echo "Setting up .venv (once, about half a minute) ..." >&2
	$(PYTHON) -m venv .venv
	$(BIN)/python $(PIP) --editable '.[dev]'
	@touch $@

# The servers of the example. Without Node the bridge still runs, and says which servers are missing.

.PHONY: example
example: .venv-servers/.ready $(if $(shell command -v npm),examples/node_modules/.ready,no-node)

.venv-servers/.ready: examples/requirements.txt
	@echo "Installing the example's Python servers into .venv-servers (once) ..." >&2
	$(PYTHON) -m venv .venv-servers
	.venv-servers/bin/python $(PIP) --requirement examples/requirements.txt
	@touch $@

examples/node_modules/.ready: examples/package-lock.json
	@echo "Installing the example's Node servers into examples/node_modules (once) ..." >&2
	npm ci --prefix examples --silent --no-audit --no-fund
	@touch $@

.PHONY: no-node
no-node:
	@echo "Node (npm) is not installed: the servers 'files', 'everything' and 'web' of the example will be missing." >&2
