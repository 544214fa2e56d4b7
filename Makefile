# make demo    install, train a small translator on the bundled corpus, translate, draw its attention weights
# make test    install, and run all tests
# make check   format, lint, types
# make bench   measure regard and its peers: the numbers, page and pictures of docs/performance.md
# make bench-train  speed of training the translator, against plain PyTorch (see benchmarks/)

PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
DEMO_OPTIONS ?= --overwrite
TEST_OPTIONS ?= -n 2
BENCH_OPTIONS ?=

.PHONY: demo test check format bench bench-train clean
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

bench: $(VENV)/installed-bench
	mkdir -p build/bench
	$(BIN)/regard bench --threads 2 --json build/bench/performance.json --page docs/performance.md \
	  --pictures docs/pictures/performance $(BENCH_OPTIONS)

bench-train: $(VENV)/installed-dev
	$(BIN)/python benchmarks/train_translate.py $(BENCH_OPTIONS)

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

$(VENV)/installed-bench: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(BIN)/pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable '.[dev,bench]'
	touch $@ $(VENV)/installed $(VENV)/installed-dev
