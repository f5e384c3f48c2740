# Short names for what one does here. `make` lists them.
VENV ?= .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test test-long audit lint format docs wheel bench-env ci clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV) ## optimise, compile and run ResNet-50
	$(BIN)/eqsat-layout demo

test: $(VENV) ## run the tests
	$(BIN)/python -m pytest

test-long: $(VENV) ## run the tests with all cases and three times as many examples of what is built for each
	EQSAT_LAYOUT_LONG_TESTS=1 $(BIN)/python -m pytest

SECONDS_EACH ?= 600
audit: $(VENV) ## run attacks, damaged files, wrong rules and ten minutes of each fuzzer; say at the end what failed
	@failed=; for step in "python -m pytest -q tests/attacks tests/soundness" \
	  "python -m bench.soundness.bad_rules" \
	  "python -m bench.soundness.mutated_files" \
	  "eqsat-layout fuzz --seconds $(SECONDS_EACH)" \
	  "eqsat-layout fuzz-programs --seconds $(SECONDS_EACH)" \
	  "eqsat-layout fuzz-programs --exact --seconds $(SECONDS_EACH)" \
	  "eqsat-layout fuzz-programs --target llvm --seconds $(SECONDS_EACH)" \
	  "eqsat-layout fuzz-programs --guarded --seconds $(SECONDS_EACH)"; \
	do echo "audit: $$step"; $(BIN)/$$step || failed="$$failed; $$step"; done; \
	if [ -n "$$failed" ]; then echo "audit: FAILED$$failed"; exit 1; else echo "audit: nothing found"; fi

lint: $(VENV) ## ruff and mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV) ## let ruff fix and format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(VENV) ## build the pages into site/; a broken link fails
	$(BIN)/mkdocs build --strict -q

wheel: $(VENV) ## build the wheel into dist/
	$(BIN)/pip wheel --no-deps --wheel-dir dist .

bench-env: $(VENV) ## install what bench/ needs (torch, onnx, ...: gigabytes)
	$(BIN)/pip install -q --group bench

ci: ## what CI runs: tests and lint in a fresh copy and a fresh environment
	.ci/run

clean: ## remove caches and builds, keep the environment
	rm -rf build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

$(VENV): pyproject.toml
	python3.11 -m venv $(VENV)
	$(BIN)/pip install -q -U pip
	$(BIN)/pip install -q -e . --group test --group lint
	touch $(VENV)
