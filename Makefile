# make demo    install, train a small translator on the bundled corpus, translate, draw its attention weights
# make test    install, and run all tests, grids of cases as samples in which each pair of values occurs
# make test-all   the same with the full grids
# make test-triton   run the kernels for GPUs in Triton's interpreter, and compile them as far as that needs no GPU (Linux)
# make test-oldest, make test-newest   the same with the oldest and the newest versions that pyproject.toml allows
# make check   format, lint, types; of the viewer's modules where Node.js is there
# make viewer  join the viewer's modules into src/regard/viewer/viewer.js; the goals that use the viewer do it themselves
# make signatures   write src/regard/tasks/signatures.pyi anew for editors, after a change of a task's options
# make bench   measure regard and its peers: the numbers, page and pictures of docs/en/understand/performance.md
# make bench-gpu   the same on an NVIDIA GPU, with other sizes
# make docs    build the site into build/site, and open it in the browser
# make docs-test   build the site anew, running each page, and test all that it says and links to
# make bench-train  speed of training the translator, against plain PyTorch (see bench/scripts/)

PYTHON ?= python3
VENV   ?= .venv
# Windows has other names for the folder of a virtual environment's commands.
BIN     = $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
DEMO_OPTIONS ?= --overwrite
TEST_OPTIONS ?= -n 2 --dist worksteal
BENCH_OPTIONS ?=
CONSTRAINTS ?= constraints.txt

.PHONY: demo test test-all test-triton test-oldest test-newest check format viewer signatures docs docs-test bench bench-gpu bench-train clean
.DELETE_ON_ERROR:

demo: $(VENV)/installed
	$(BIN)/regard demo $(DEMO_OPTIONS)

# The workers are as many as the cores: each, and each process that a test starts, is one thread.
test test-triton docs-test: export OMP_NUM_THREADS = 1

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest $(TEST_OPTIONS)

test-all:
	$(MAKE) test TEST_OPTIONS="$(TEST_OPTIONS) --full"

test-triton: $(VENV)/triton/installed
	PYTHONPATH=$(abspath $(<D)) TRITON_INTERPRET=1 $(BIN)/python -m pytest tests/attention/test_triton.py
	PYTHONPATH=$(abspath $(<D)) $(BIN)/python -m pytest tests/kernels/test_triton_programs.py

test-oldest:
	$(MAKE) test VENV=.venv-oldest CONSTRAINTS=constraints-oldest.txt

test-newest:
	$(MAKE) test VENV=.venv-newest CONSTRAINTS=

check: $(VENV)/installed-dev signatures
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	viewer/check
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

viewer:
	$(PYTHON) viewer/join.py

signatures: $(VENV)/installed-dev
	$(BIN)/python docs/make_signatures.py

docs: $(VENV)/installed-docs
	$(BIN)/python docs/build.py --open

docs-test: $(VENV)/installed-dev
	$(BIN)/python docs/build.py --fresh
	$(BIN)/python -m pytest $(TEST_OPTIONS) --site tests/docs/test_built_site.py tests/docs/test_shell_lines.py \
	  tests/docs/test_two_languages.py

bench: $(VENV)/installed-bench
	mkdir -p build/bench
	$(BIN)/regard bench --threads 2 --json build/bench/performance.json --page docs/en/understand/performance.md \
	  --pictures docs/pictures/performance $(BENCH_OPTIONS)

bench-gpu: $(VENV)/installed-bench
	mkdir -p build/bench
	$(BIN)/regard bench --device cuda --dtype bfloat16 --json build/bench/performance-gpu.json $(BENCH_OPTIONS)

bench-train: $(VENV)/installed-dev
	$(BIN)/python -m bench.scripts.train_translate $(BENCH_OPTIONS)

clean:
	rm -rf $(VENV) .venv-oldest .venv-newest build dist viewer/node_modules .pytest_cache .ruff_cache .hypothesis

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml $(CONSTRAINTS) | $(BIN)/pip viewer
	$(BIN)/pip install --disable-pip-version-check --quiet $(addprefix --constraint ,$(CONSTRAINTS)) --editable '.[all]'
	touch $@

$(VENV)/installed-docs: pyproject.toml $(CONSTRAINTS) | $(BIN)/pip viewer
	$(BIN)/pip install --disable-pip-version-check --quiet $(addprefix --constraint ,$(CONSTRAINTS)) --editable '.[docs]'
	touch $@ $(VENV)/installed

$(VENV)/installed-dev: pyproject.toml $(CONSTRAINTS) | $(BIN)/pip viewer
	$(BIN)/pip install --disable-pip-version-check --quiet $(addprefix --constraint ,$(CONSTRAINTS)) --editable '.[dev]'
	touch $@ $(VENV)/installed $(VENV)/installed-docs

# PyTorch for CPUs comes without Triton. The other tests run as there, so Triton has a folder of its own.
$(VENV)/triton/installed: $(CONSTRAINTS) | $(VENV)/installed-dev
	$(BIN)/pip install --disable-pip-version-check --quiet --no-deps $(addprefix --constraint ,$(CONSTRAINTS)) \
	  --upgrade --target $(VENV)/triton triton
	touch $@

$(VENV)/installed-bench: pyproject.toml $(CONSTRAINTS) | $(BIN)/pip viewer
	$(BIN)/pip install --disable-pip-version-check --quiet $(addprefix --constraint ,$(CONSTRAINTS)) --editable '.[dev,bench]'
	touch $@ $(VENV)/installed $(VENV)/installed-docs $(VENV)/installed-dev
