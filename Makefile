# The two commands of the README are `make demo` and `make test`. Both build .venv from the lock file first.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check format docs accuracy lock services bench fuzz clean

demo: .venv
	$(BIN)/python -m gpuledger.app demo $(DEMO)

# The whole suite takes two workers; for the files in TESTS their start would cost more than it saves.
test: .venv
	$(BIN)/python -m pytest $(if $(TESTS),$(TESTS),-n 2 --dist loadfile)

check: .venv
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/sqlfluff lint sql

format: .venv
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/sqlfluff fix sql

# The pages that are tables of the code: settings, queries, command line, adapters.
docs: .venv
	$(BIN)/python -m docs.generate

# Precision and recall of the rules on simulated fleets whose truth is known: writes docs/accuracy.md.
accuracy: .venv
	$(BIN)/python -m gpuledger.app accuracy --out docs/accuracy.md

bench: .venv var/nvitop-venv/.done
	for file in benchmarks/*.py; do $(BIN)/python $$file || exit 1; done

# All fuzzers together take FUZZ_SECONDS; another FUZZ_SEED gives other inputs.
FUZZ_SECONDS ?= 1200
FUZZ_SEED ?= 1
FUZZERS := $(filter-out fuzz/_%,$(wildcard fuzz/*.py))

fuzz: .venv
	for file in $(FUZZERS); do \
		$(BIN)/python $$file --seed $(FUZZ_SEED) --seconds $$(( $(FUZZ_SECONDS) / $(words $(FUZZERS)) )) || exit 1; done

.venv: requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	touch .venv

# Versions and hashes only: no registry address goes into the lock file.
lock:
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --output-file requirements.lock

# Real services that the tests start and whose pins clash with ours: an environment for each. Without them, and without
# the packages of .ci/run, those tests are skipped. GPULEDGER_TEST_AIRFLOW and GPULEDGER_TEST_RAY name others.
services: var/airflow-venv/.done var/ray-venv/.done

var/%-venv/.done: tests/servers/locks/%.txt
	$(PYTHON) -m venv var/$*-venv
	var/$*-venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement $<
	touch $@

clean:
	rm -rf .venv var build dist
