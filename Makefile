# `make run` does the main job and `make test` does everything CI does; each first sets up what it needs in .venv.
#
#   PYTHON=python3.12   the interpreter to make .venv with (3.10 or newer)
#   PYTEST="-k lease"   further arguments for pytest
#   JOBS=4              how many tests run at once

PYTHON ?= python3
# Two more than there are cores, since many tests wait for something; each job has a torch of its own, so eight at most.
JOBS ?= $(shell cores=$$(nproc); echo $$((cores < 6 ? cores + 2 : 8)))
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check

# Set in many images: each of the thousand processes that the tests start would then compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-oldest clean

run: $(VENV)/local.stamp
	$(BIN)/kernel-matrix run --build matrix.toml
	@command -v kernel-matrix >/dev/null || echo 'kernel-matrix is in $(BIN): . $(BIN)/activate'

test: $(VENV)/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	JOBS=$(JOBS) .ci/test-oldest
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder $(PYTEST)

# The host side on Python 3.10 without torch, where this machine has a Python 3.10.
test-oldest:
	JOBS=$(JOBS) .ci/test-oldest

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find runner tests benchmarks problems -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: a second `make run` installs nothing, a changed pyproject.toml does.
$(VENV)/local.stamp: pyproject.toml | $(BIN)/python
	$(INSTALL) -e '.[local]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml | $(BIN)/python
	$(INSTALL) -e '.[local,report,service,client,dev]'
	@touch $@ $(VENV)/local.stamp

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "$(PYTHON) was not found. Install Python 3.10 or newer, or name one: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "kernel-matrix needs Python 3.10 or newer, and $(PYTHON) is older (or broken). Name another one:" \
	    "make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
