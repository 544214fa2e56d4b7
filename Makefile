# make demo    set up, train a small translator on the bundled corpus, translate, draw where it looked
# make test    set up, and run all tests
# make check   format, lint, types
# make bench   benchmarks (see benchmarks/)

PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
DEMO_OPTIONS ?= --overwrite
TEST_OPTIONS ?= -n 2

.PHONY: demo test check format bench clean
.DELETE_ON_ERROR:

demo: $(VENV)/installed
	$(BIN)/regard demo $(DEMO_OPTIONS)

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest $(TEST_OPTIONS)

check: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/installed-dev
	$(BIN)/python benchmarks/train_translate.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(BIN)/pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable '.[all]'
	touch $@

$(VENV)/installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(BIN)/pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@ $(VENV)/installed
