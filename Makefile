# Everything sets itself up from a bare checkout: python3 and make are enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# To check with an installation of your own: make check-full LUNETTE="python -m lunette"
LUNETTE ?= $(BIN)/lunette
CHECKS := $(foreach backend,spec cpu triton,$(foreach seed,0 1 2 3 4 5 6 7 8 9,check-$(backend)-$(seed)))

.PHONY: demo test test-full test-arm bench check-full $(CHECKS) docs lint lock clean

demo: $(VENV)/installed            ## install, then a tour of the library in the terminal
	$(BIN)/lunette tour

test: $(VENV)/installed-test       ## everything that must hold, in minutes
	$(PYTEST) -n 2 --dist worksteal -m "not full"

test-full: $(VENV)/installed-test  ## the long sweeps too
	$(PYTEST) -n 2 --dist worksteal

test-arm: $(VENV)/installed-test   ## the kernels on an emulated aarch64 processor; on an x86 Debian or Ubuntu
	PYTHON=$(BIN)/python tests/arm/run.sh

bench: $(VENV)/installed-bench     ## measure our ops, the peers and a plain copy in one run; draw it for the docs
	$(BIN)/python -m benchmarks --write-docs

check-full: $(CHECKS)              ## our own backends under the checker: ten seeds, an hour; less with make -j8 -O

$(CHECKS): check-%: $(if $(filter $(BIN)/%,$(LUNETTE)),$(VENV)/installed-test)
	$(LUNETTE) check $(subst -, --seed ,$*) --time 120

# The window explorer is tested in a browser: installed here where apt and its rights allow it, else that test says why it is skipped.
CHROMIUM = command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq chromium; } || true

docs: $(VENV)/installed-docs       ## run the examples that the documentation shows, and build the site
	$(CHROMIUM)
	$(PYTEST) -m "not full" tests/test_docs.py tests/test_docstrings.py tests/test_explorer.py
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

lint: $(VENV)/installed-test
	$(BIN)/pip install --quiet -r requirements/lint.txt
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

lock: $(VENV)/installed-docs       ## write down every version of this environment
	$(BIN)/pip install --quiet -r requirements/lint.txt
	head -2 requirements/lock.txt > $(VENV)/lock.txt
	$(BIN)/pip freeze --exclude-editable | sed -n 's/^\([^ @+]*==[^ @+]*\).*/\1/p' >> $(VENV)/lock.txt
	mv $(VENV)/lock.txt requirements/lock.txt

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

$(VENV)/installed-docs: requirements/docs.txt $(VENV)/installed-test
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements/docs.txt
	touch $@

$(VENV)/installed-bench: requirements/bench.txt $(VENV)/installed-test
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements/bench.txt
	touch $@
