# Each target does its own set-up: a fresh clone needs Python >= 3.11, make and a package index, nothing else.
#   make run     name server and broker in one process, data under ./data
#   make quick   the pure unit tests, in seconds
#   make test    everything that needs neither Java nor Go, in a few minutes

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
PY     := $(VENV)/bin/python
PYTEST := $(PY) -m pytest

SEEDS        ?= 1000
# A world, which share of SEEDS it gets (4 is a quarter), and its first seed: make test runs those of raft up to 499.
WORLDS       ?= store:1 delays:4 transactions:4 globals:1 ledger:20 timers:10 groups:15 cluster:5 dledger:15 raft:1:500
KILLS        ?= 100
MINUTES      ?= 3
PAIR         ?= ours
FUZZ_SECONDS ?= 60
JOBS         ?= 2
WAITING      ?= 4
SELECT       ?= not long
UNIT         ?= tests/unit

# Python keeps the compiled modules even where the environment says that it shall not: every run without them
# compiles 800 modules in each process, which takes longer than many suites.
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.PHONY: help run cluster venv fmt quick check lint types imports unit test test-interop test-spark record simulation scale kills failures hostile fuzz bench test-long test-long-status
.PHONY: docs wheel clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

run: $(VENV)/.shown  ## name server and broker in one process, data under ./data, and a pipeline on Spark beside them
	@exec $(VENV)/bin/turbopump up --data ./data --demo $(ARGS)

cluster: $(VENV)/.run  ## two masters, two slaves below ./data-cluster; kills a master, shows what happens; ARGS=dledger: a group of three
	@exec $(PY) scripts/cluster.py --data ./data-cluster $(ARGS)

venv: $(VENV)/.dev  ## the development environment

# --- quality ---------------------------------------------------------------------------------------------------

fmt: $(VENV)/.dev  ## format and mend what ruff can mend
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

quick: $(VENV)/.dev  ## the pure unit tests, in seconds; tests/unit/not_quick.txt lists the others
	@HYPOTHESIS_PROFILE=quick $(PYTEST) tests/unit --quick -n $(JOBS) --dist worksteal $(ARGS)

# Types and contract beside the unit tests, and printed after them.
check: lint  ## format, lint, types, import contract, unit tests
	@log=$$(mktemp) && trap 'rm -f $$log' EXIT; \
	$(MAKE) --no-print-directory --keep-going types imports >$$log 2>&1 & beside=$$!; \
	status=0; $(MAKE) --no-print-directory unit || status=$$?; \
	wait $$beside || status=$$?; cat $$log; exit $$status

lint: $(VENV)/.dev
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .

types: $(VENV)/.dev
	@$(PY) -m mypy

imports: $(VENV)/.dev
	@$(VENV)/bin/lint-imports --no-logo

unit: $(VENV)/.dev
	@$(PYTEST) $(UNIT) -n $(JOBS) --dist worksteal

# --- tests -----------------------------------------------------------------------------------------------------

test: $(VENV)/.dev  ## unit, integration, quick simulation and packaging tests; no Java, Maven or Go
	@$(PYTEST) tests --ignore tests/interop --ignore tests/spark -m "not long and not interop" -n $(WAITING) --dist loadfile $(ARGS)
	@echo "make test: all passed. Real Apache clients and servers: make test-interop"

test-interop: $(VENV)/.dev  ## the real Apache clients, tools and servers (needs Java, Maven, Go and the network)
	@$(PYTEST) tests/interop -m "$(SELECT)" $(ARGS)

test-spark: $(VENV)/.spark  ## pipelines in a real Spark (needs Java 17 or newer)
	@$(PYTEST) tests/spark -m "$(SELECT)" $(ARGS)

record: $(VENV)/.dev  ## record the answers of Apache's servers again, per version, into tests/compat/recorded
	@$(PY) -m tests.interop.record $(ARGS)

simulation: $(VENV)/.dev  ## SEEDS worlds in virtual time, JOBS at a time, on a disk that loses and tears writes
	@for world in $(WORLDS); do set -- $$(echo $$world | tr : ' '); \
	  $(PY) -m tests.simulation --jobs $(JOBS) --world $$1 --first $${3:-0} --seeds $$(($(SEEDS) / $$2)) $(ARGS) || exit; done

scale: $(VENV)/.dev  ## the planning world of docs/scale.md: 100 brokers, 5,000 clients; ARGS='--brokers 20 …': another size
	@$(PY) -m tests.simulation.scale $(ARGS)

kills: $(VENV)/.dev  ## a store's process killed KILLS times while it appends, a broker's KILLS times while it is sent to
	@KILLS=$(KILLS) $(PYTEST) tests/integration/store/test_kill.py tests/integration/broker/test_kill.py $(ARGS)

failures: $(VENV)/.dev  ## pairs of broker processes under failures for MINUTES, counted; PAIR=ours, 4.9.7, 5.5.0, group or group-4.9.7
	@$(PY) -m tests.failures --pair $(PAIR) --minutes $(MINUTES) $(ARGS)

hostile: $(VENV)/.dev  ## slow, silent, greedy and broken peers against running servers; SELECT=long: the large crowds
	@$(PYTEST) tests/hostile -m "$(SELECT)" $(ARGS)

fuzz: $(VENV)/.fuzz  ## every decoder under hostile input, FUZZ_SECONDS each, JOBS at a time
	@$(PY) -m tests.fuzz --seconds $(FUZZ_SECONDS) --jobs=$(JOBS) $(ARGS)

bench: $(VENV)/.dev  ## the figures of docs/performance.md
	@$(PY) -m benchmarks $(ARGS)

test-long: $(VENV)/.dev  ## the pieces of .ci/long: hours. Goes on where it was stopped; PIECE=name: that one
	@$(PY) -m tests.long_run $(PIECE:%=--piece %) $(ARGS)

test-long-status: $(VENV)/.dev  ## which pieces have passed at this commit
	@$(PY) -m tests.long_run --status

# --- documentation and packages --------------------------------------------------------------------------------

docs: $(VENV)/.docs  ## build docs/ into site/; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo "make docs: site/index.html"

wheel: $(VENV)/.dev  ## build the wheel into dist/
	@$(PY) -m pip wheel -q --no-deps --wheel-dir dist .
	@ls dist/*.whl

clean:  ## remove what was built (not ./data)
	rm -rf $(VENV) dist build site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	rm -f src/turbopump/compiled/*.so

# --- environments: a stamp file per set of packages ------------------------------------------------------------

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "turbopump needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo 'not there')." >&2; \
	  echo "Name another one: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Setting up $(VENV) (once) ..."
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@touch $@

# Builds the compiled send path too, where there is a compiler; TURBOPUMP_PURE=1 does without.
$(VENV)/.run: $(VENV)/.python pyproject.toml hatch_build.py $(wildcard src/turbopump/compiled/*.[ch])
	@$(PY) -m pip install -q --disable-pip-version-check -e .
	@$(PY) -c 'from turbopump.compiled import twins; twins() or print("No compiled send path: Python serves alone.")'
	@touch $@

# Without Java there is no Spark: 0.5 GB are not fetched for nothing, and the messaging half is shown alone.
# It is also shown alone when PySpark cannot be fetched; the next run tries again.
$(VENV)/.shown: $(VENV)/.run pyproject.toml
	@if [ -n "$$JAVA_HOME" ] || command -v java >/dev/null; then \
	  echo "Getting PySpark (once, 0.5 GB) ..."; \
	  if $(PY) -m pip install -q --disable-pip-version-check --use-pep517 -e '.[spark]'; then touch $@; \
	  else echo "PySpark could not be had: the pipeline is left out" >&2; fi; \
	fi

# `pip install --group` came with pip 25.1.
$(VENV)/.dev: $(VENV)/.run pyproject.toml
	@$(PY) -m pip install -q --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(PY) -m pip install -q --disable-pip-version-check --group dev
	@touch $@

# Atheris has no wheel for every Python; the search then mutates without looking at coverage.
$(VENV)/.fuzz: $(VENV)/.dev pyproject.toml
	@$(PY) -m pip install -q --disable-pip-version-check --only-binary :all: --group fuzz || \
	  echo "no atheris for this Python: fuzzing by mutation alone"
	@touch $@

$(VENV)/.docs: $(VENV)/.dev pyproject.toml
	@$(PY) -m pip install -q --disable-pip-version-check --group docs
	@touch $@

$(VENV)/.spark: $(VENV)/.dev pyproject.toml
	@echo "Getting PySpark (once, 0.5 GB) ..."
	@$(PY) -m pip install -q --disable-pip-version-check -e '.[spark]' --group spark
	@touch $@
