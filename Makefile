# Thin: every target is one plain command, and README.md gives it too. `make` alone lists them.
# The virtual environment .venv is made once and filled again only when pyproject.toml changes.
#   make test PYTHON=python3.13     choose the interpreter

BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test lint bench clean

help:
	@echo 'make demo   a workspace from a template, its plugins tested with the scripted model'
	@echo 'make test   the test suite'
	@echo 'make lint   ruff, mypy, import layers, module lengths'
	@echo 'make bench  the measurements, each a table with a ratio'
	@echo 'make clean  remove .venv and the caches'

demo: .venv/.core
	@sh .ci/demo.sh $(BIN)

test: .venv/.dev
	$(BIN)/python -m pytest -n auto --dist worksteal

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python .ci/module_lengths.py

bench: .venv/.dev
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/harness.py
	$(BIN)/python benchmarks/tracing.py
	$(BIN)/python benchmarks/regrading.py
	$(BIN)/python benchmarks/traffic.py
	$(BIN)/python benchmarks/faas.py

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

.venv/.core: pyproject.toml
	@sh .ci/venv.sh '.' '$(PYTHON)'
	@touch $@

.venv/.dev: pyproject.toml
	@sh .ci/venv.sh '.[dev]' '$(PYTHON)'
	@touch .venv/.core $@
