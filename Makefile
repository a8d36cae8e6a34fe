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
BENCHMARKS := startup kernel scaling california als split ablation predict export explain trees page formats riemannian mnist tabular/run

.PHONY: demo test test-target browser lint docs bench reproduce torture release-check clean

$(VENV)/.base: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(if $(OLDEST),$(BIN)/python .ci/oldest.py > $(OLDEST))
	$(INSTALL) --editable '.[cli,plot]'
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	$(INSTALL) --editable '.[cli,plot,dev,docs,torch]'
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(INSTALL) --editable '.[cli,plot,dev,docs,torch,bench]'
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

# The site, into build/docs. A warning is an error, and so is a link inside it that leads nowhere. It is
# always built anew: pages that were read before keep links to what was missing then.
docs: $(VENV)/.dev
	rm -rf build/docs build/doctrees
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --nitpicky --builder html \
	--doctree-dir build/doctrees docs build/docs
	$(BIN)/python .ci/links.py build/docs

bench: $(VENV)/.bench
	@for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py || exit 1; done

# QUICK=1 is a trial run of some minutes; DOCS=1 writes docs/results.md from a full run.
reproduce: $(VENV)/.bench
	$(BIN)/python -m experiments $(if $(QUICK),--quick) $(if $(DOCS),--docs)

$(VENV)/.torture: $(VENV)/.dev
	$(INSTALL) --editable '.[cli,plot,dev,torch,torture]'
	@touch $@

# Attacks on files, tables, processes, clusters, threads and pages: docs/reliability.md. Each part goes
# on where it stopped. PARTS, MINUTES (of each part), JOBS and SEED can be given. QUICK=1 takes about two
# minutes in all, starts anew, and keeps no record.
PARTS := files tables hashes faults load $(if $(QUICK),,clusters reports peers)
MINUTES := $(if $(QUICK),0.2,30)
JOBS := 2
torture: $(VENV)/.torture
	@status=0; for part in $(PARTS); do PYTHONPATH=tests $(BIN)/python torture/$$part.py \
	--seed $${SEED:-0} --minutes $(MINUTES) --jobs $(JOBS) $(if $(QUICK),--trial) || status=1; done; \
	exit $$status

# Builds wheel and sdist, and tries them in an empty environment per extra: some minutes, and much to
# download. EXTRAS="cli plot" tries only these.
release-check:
	$(PYTHON) .ci/release.py $(EXTRAS)

clean:
	rm -rf $(VENV) build demo results .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis
