# Everything sets itself up from a bare checkout: python3 and make are enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest

.PHONY: demo test test-full bench check-full docs lint clean

demo: $(VENV)/installed            ## install, then a tour of the library in the terminal
	$(BIN)/lunette tour

test: $(VENV)/installed-test       ## everything that must hold, in minutes
	$(PYTEST) -n 2 --dist worksteal -m "not full"

test-full: $(VENV)/installed-test  ## the long sweeps too
	$(PYTEST) -n 2 --dist worksteal

bench: $(VENV)/installed-bench     ## measure: our ops, the peers and a plain copy in one run
	$(BIN)/python -m benchmarks

check-full: $(VENV)/installed-test ## our own backends under the checker: ten seeds, an hour
	for backend in spec cpu triton; do for seed in 0 1 2 3 4 5 6 7 8 9; do \
	  $(BIN)/lunette check $$backend --seed $$seed --time 120 || exit 1; done; done

docs: $(VENV)/installed-test       ## run the examples that the documentation shows
	$(PYTEST) tests/test_docs.py

lint: $(VENV)/installed-test
	$(BIN)/pip install --quiet -r requirements/lint.txt
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# A stamp is remade only when what it installs has changed, so later runs need no network.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[exact]'
	touch $@

$(VENV)/installed-test: requirements/test.txt $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements/test.txt
	touch $@

$(VENV)/installed-bench: requirements/bench.txt $(VENV)/installed-test
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements/bench.txt
	touch $@
