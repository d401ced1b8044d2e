# make demo   the kernel table on this machine, then the digits example
# make test   lint, types, tests, docs' examples: all that .ci/run runs
# make bench  the whole kernel table, with every peer that is installed
# Each makes .venv first if it is missing. PYTHON names the interpreter (3.11 to 3.13).

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
OUT ?= build

.PHONY: demo test bench lint types clean

$(BIN)/python:
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if (3, 11) <= v < (3, 14) \
	    else "tilewright needs Python 3.11 to 3.13; name one with: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[examples]'
	touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,examples]'
	touch $@

demo: $(VENV)/.demo
	mkdir -p $(OUT)
	$(BIN)/tilewright bench --quick --html $(OUT)/bench.html
	$(BIN)/python examples/digits.py --output $(OUT)/digits.png

test: $(VENV)/.test lint types
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(VENV)/.test
	$(BIN)/ruff check .

types: $(VENV)/.test
	$(BIN)/mypy

bench: $(VENV)/.demo
	mkdir -p $(OUT)
	$(BIN)/tilewright bench --json $(OUT)/bench.json --html $(OUT)/bench.html

clean:
	rm -rf $(VENV) $(OUT) .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
