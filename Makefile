# Every target makes the virtual environment it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help copy test lint clean

help:
	@echo "make copy    train a Transformer to copy, and look at what it does (under a minute)"
	@echo "make test    run every test"
	@echo "make lint    check the style"
	@echo "make clean   remove what the other targets made"

copy: $(VENV)/ready
	$(BIN)/python scripts/train_copy.py

test: $(VENV)/ready
	$(BIN)/python -m pytest -q -rs

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

clean:
	rm -rf $(VENV) runs build dist *.egg-info .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/ready: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@
