# Everything a developer runs. `make help` lists it; each target sets up what it needs, once.

MAKEFLAGS += --no-print-directory
# Some images set it. Tests start hundreds of processes, and each would compile again all that it imports.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.PHONY: help setup test lint format demo soak docs installs lock clean broker-files

VENV := .venv
BIN := $(VENV)/bin
OLDEST := 3.11

# The first Python that is new enough; `make setup PYTHON=...` chooses another.
is_new_enough = $(1) -c 'import sys; sys.exit(sys.version_info < ($(subst .,$(comma),$(OLDEST))))' 2>/dev/null
comma := ,
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	if $(call is_new_enough,$$python); then echo $$python; exit; fi; done; echo python3)
PYTHON_VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)

# Younger than the locks and the project file, the environment is right: a warm `make setup` looks at nothing else.
READY := $(VENV)/.ready-$(PYTHON_VERSION)
LOCKS := requirements/bootstrap.lock requirements/dev.lock

PYTEST_ARGS ?= -n 3
DEMO_ARGS ?=
SOAK_ARGS ?=

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 10
	@echo "Choose a Python ($(OLDEST) or newer) with PYTHON=, pass options with PYTEST_ARGS= and DEMO_ARGS=."

setup: $(READY) ## Make .venv from the hashed locks and install the project into it, editable

$(READY): $(LOCKS) pyproject.toml
	@$(call is_new_enough,$(PYTHON)) || { \
		echo "Error: rollbook needs Python $(OLDEST) or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1):" \
			"install one, and name it with make PYTHON=python$(OLDEST)" >&2; exit 3; }
	@# A .venv of another Python version, or one that was moved or copied here, is made anew.
	@[ "$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$(PYTHON_VERSION)" ] \
		&& head -n 1 $(BIN)/pip 2>/dev/null | grep -qF "$(CURDIR)/$(VENV)/" \
		|| { echo "making $(VENV) with $$($(PYTHON) --version)"; $(PYTHON) -m venv --clear $(VENV); }
	@rm -f $(VENV)/.ready-*
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.lock
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes $(LOCKS)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

broker-files: $(READY)
	@$(BIN)/rollbook broker fetch

lint: $(READY) ## Check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy examples

format: $(READY) ## Let ruff format and sort the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: $(READY) ## Check everything, then run the tests on a real broker
	@$(MAKE) --jobs=2 --output-sync=target lint broker-files
	$(BIN)/pytest $(PYTEST_ARGS)

demo: broker-files ## Train a small model through a real broker and replay its updates
	$(BIN)/rollbook demo $(DEMO_ARGS)

MINUTES ?= 3
soak: broker-files ## Kill and stop processors and brokers for MINUTES=, then check the log (SOAK_ARGS=)
	$(BIN)/python -m rollbook.tests.soak.run --minutes $(MINUTES) $(SOAK_ARGS)

docs: $(READY) ## Build the documentation as a site, in site/
	$(BIN)/mkdocs build --strict

NOX_ARGS ?=
installs: $(READY) ## Install into fresh environments: each Python, each extra (NOX_ARGS="-s lowest")
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/nox $(NOX_ARGS)

# The only step that takes what the registries offer today; the pins stay unless UPGRADE=--upgrade says otherwise.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version $(OLDEST) --generate-hashes --no-annotate \
	--custom-compile-command "make lock" $(UPGRADE)
lock: $(READY) ## Resolve the locks anew (UPGRADE=--upgrade for newer versions)
	$(COMPILE) requirements/bootstrap.in --output-file requirements/bootstrap.lock
	$(COMPILE) pyproject.toml --all-extras --group dev --output-file requirements/dev.lock
	$(BIN)/python -m rollbook.infra.broker.resolve

clean: ## Remove .venv, build output and tool caches; the user's cache of broker files stays
	rm -rf $(VENV) build dist site .nox .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
