# Everything a developer or a newcomer runs; `make help` lists it. Only Python (with venv) and make are assumed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest
# So many workers for two cores: in `make test` most of them wait for programs that they started.
WORKERS := --dist load --no-loadscope-reorder --numprocesses

PROGRAMS := tests/certs tests/console tests/files tests/server tests/settler tests/watcher

# Bytecode is kept, whatever the environment says: tests start hundreds of programs.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup run quick test strict check format cluster bench soak release image clean

help: ## list these targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): uv.lock pyproject.toml .ci/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit("gpu-webhook needs Python 3.11 or newer; say: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@echo 'Setting up $(VENV) with the hash-locked dependencies. Only the first time, and when they change ...' >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r .ci/uv.txt
	@UV_PROJECT_ENVIRONMENT=$(VENV) $(BIN)/uv sync --quiet --locked
	@touch $@

setup: $(READY) ## create .venv and install the hash-locked dependencies

run: setup ## webhook and console without a cluster; BIND=127.0.0.1:8443 CONSOLE=127.0.0.1:8080 RULES=rules
	@$(BIN)/python -m webhook.playground $(if $(BIND),--bind $(BIND)) $(if $(CONSOLE),--console $(CONSOLE)) $(if $(RULES),--rules $(RULES))

quick: setup ## the tests that need no control plane, no browser, no image, and no thousands of pods: three minutes
	@$(PYTEST) $(WORKERS) 3 -m "not cluster and not browser and not editor and not image and not large" --ignore tests/bench

test: setup ## run every test, the real control plane included
	@$(BIN)/python -m tests.cluster.binaries
	@$(PYTEST) $(WORKERS) 4

strict: setup ## the tests of programs and connections in Python's development mode, which sees what is never closed
	@$(BIN)/python -X dev -m pytest -m "not cluster and not browser and not editor and not image and not large" $(PROGRAMS)

check: setup ## lint, types, layers, formatting, and the shipped rules with their examples
	@$(BIN)/ruff format --check --quiet . || { echo 'run `make format`'; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/gpu-webhook check rules

format: setup ## rewrite the code the way `make check` wants it
	@$(BIN)/ruff check --quiet --fix . || true
	@$(BIN)/ruff format --quiet .

cluster: setup ## a real local kube-apiserver with the webhook registered; Ctrl-C takes it down
	@$(BIN)/python -m tests.cluster

bench: setup ## reviews, pods and tenants a second, beside a no-op server and a native quota
	@$(BIN)/python -m tests.bench

soak: setup ## every test with larger numbers: more pods, storms at full size, each of them again and again
	@UV_PROJECT_ENVIRONMENT=$(VENV) $(BIN)/uv sync --quiet --locked --group soak
	@SOAK=1 $(PYTEST)

release: setup ## write install.yaml, the chart, the image, a plugin for krew, an SBOM and checksums into dist/; IMAGE=registry/name:tag or @digest URL=https://...
	@$(BIN)/python -m tests.release $(if $(IMAGE),--image $(IMAGE)) $(if $(URL),--url $(URL))

image: setup ## build the container image of Debian packages with buildah into dist/, as root
	@$(BIN)/python -m tests.image

clean: ## remove what the targets above made inside this folder
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
