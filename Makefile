# Everything sets itself up from a bare checkout: python3 and make are enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# To check with an installation of your own: make check-full LUNETTE="python -m lunette"
LUNETTE ?= $(BIN)/lunette
CHECKS := $(foreach backend,spec cpu triton,$(foreach seed,0 1 2 3 4 5 6 7 8 9,check-$(backend)-$(seed)))

.PHONY: demo test test-full bench check-full $(CHECKS) docs lint clean

demo: $(VENV)/installed            ## install, then a tour of the library in the terminal
	$(BIN)/lunette tour

test: $(VENV)/installed-test       ## everything that must hold, in minutes
	$(PYTEST) -n 2 --dist worksteal -m "not full"

test-full: $(VENV)/installed-test  ## the long sweeps too
	$(PYTEST) -n 2 --dist worksteal

bench: $(VENV)/installed-bench     ## measure our ops, the peers and a plain copy in one run; draw it for the docs
	$(BIN)/python -m benchmarks --write-docs

check-full: $(CHECKS)              ## our own backends under the checker: ten seeds, an hour; less with make -j8 -O

$(CHECKS): check-%: $(if $(filter $(BIN)/%,$(LUNETTE)),$(VENV)/installed-test)
	$(LUNETTE) check $(subst -, --seed ,$*) --time 120

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
