# Every target sets up what it needs in .venv; `make demo` and `make test` are all a newcomer needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# DEPENDENCIES=oldest, before .venv exists: install the lowest versions that pyproject.toml allows.
OLDEST := $(if $(filter oldest,$(DEPENDENCIES)),$(VENV)/oldest.txt)
INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt $(OLDEST:%=--constraint %)
# Where rounding could matter: kernels, engines, estimators, explanations.
ROUNDING := $(addprefix tests/test_,$(addsuffix .py,engine als losses penalties maps split \
	target_knots estimators defaults odd_tables priors coefficients effects anova shapley trees joined boosting))
BENCHMARKS := startup kernel scaling california als split ablation predict explain trees page formats riemannian mnist tabular/run

.PHONY: demo test test-target browser lint bench reproduce clean

$(VENV)/.base: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(if $(OLDEST),$(BIN)/python .ci/oldest.py > $(OLDEST))
	$(INSTALL) --editable '.[cli,plot]'
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	$(INSTALL) --editable '.[cli,plot,dev,torch]'
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(INSTALL) --editable '.[cli,plot,dev,torch,bench]'
	@touch $@

demo: $(VENV)/.base
	$(BIN)/polyadic demo

# COVERAGE=1 measures coverage, which makes the tests a third slower.
test: $(VENV)/.dev
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal \
	$(if $(COVERAGE),--cov --cov-report term:skip-covered --cov-fail-under 90)

# Compiled for another CPU than this one: TARGET is generic, haswell or any other that LLVM knows, or
# plain for kernels without vector types. LLVM vectorises those depending on the alignment of arrays,
# so that their last bits may differ. Empty NUMBA_CPU_FEATURES mean the features of the target.
test-target: $(VENV)/.dev
	@target=$${TARGET:-$$($(BIN)/python .ci/target.py)} && echo "compiled for $$target:" && \
	tests="$(ROUNDING)"; \
	if [ $$target = plain ]; then export POLYADIC_SIMD=0; \
	tests="-k not(same_bits) $(filter-out %_split.py,$(ROUNDING))"; \
	else export NUMBA_CPU_NAME=$$target NUMBA_CPU_FEATURES=; fi && \
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal $$tests

# The browser of the tests, for systems without a package of chromium. A script instead of a link: on
# macOS chromium looks for its parts beside the file that is started.
browser: $(VENV)/.dev
	$(BIN)/playwright install --with-deps chromium
	printf '#!/bin/sh\nexec "%s" "$$@"\n' "$$($(BIN)/python .ci/browser.py)" > $(BIN)/chromium
	chmod +x $(BIN)/chromium

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.bench
	@for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py || exit 1; done

# QUICK=1 is a trial run of some minutes; DOCS=1 writes docs/results.md from a full run.
reproduce: $(VENV)/.bench
	$(BIN)/python -m experiments $(if $(QUICK),--quick) $(if $(DOCS),--docs)

clean:
	rm -rf $(VENV) demo results .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis
