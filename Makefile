PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
MODELS := $(VENV)/.models-installed
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip

.PHONY: help setup demo test check bench docs clean
help:  ## show the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: $(STAMP)  ## make .venv with everything that demo and tests need

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -q -c constraints.txt -e '.[torch,dev]'
	$(BIN)/python tools/compile_planner.py
	touch $@

$(MODELS): $(STAMP)
	$(PIP) install -q -c constraints.txt -e '.[torch,hf,timm,dev]'
	touch $@

demo: setup  ## schedule and train several real models over unlike emulated devices; leaves report/
	$(BIN)/ignite demo

test: setup $(MODELS) check  ## run all checks and tests
	$(BIN)/python -m pytest

check: setup  ## style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup  ## run the benchmarks and print their tables
	for f in $(filter-out benchmarks/plan_check.py,$(wildcard benchmarks/[a-z]*.py)); do $(BIN)/python $$f || exit 1; done

docs: setup  ## regenerate the generated parts of docs/
	$(BIN)/python docs/generate.py

clean:  ## remove what the targets made
	rm -rf $(VENV) build dist report runs
