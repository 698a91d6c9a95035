# make demo    the School study: table, privacy report, picture (ARGS="--help" for options)
# make test    the tests                          make test-slow  the statistical ones
# make test-nvflare  those of the extra "nvflare", in an environment of its own
# make test-ray      the same for "ray"           make test-torch  and for "torch"
# make test-processors   the numerical ones with the instructions of other processors
# make test-rounding     all with other last bits in their tables, under eight seeds
# make test-versions     what scikit-learn asks of estimators, with its older releases
# make test-oldest       the tests with the oldest releases of dependencies that are supported
# make test-next         the tests with pre-releases of NumPy, SciPy, scikit-learn and numba
# make coverage          the tests, and the lines of Python that they run, in coverage.xml
# make bench   timings against other solvers      make lint       ruff, mypy
# make bench-compare REV=COMMIT     speed of the last commit over COMMIT (BENCH=fits.School)
# make accuracy-compare REV=COMMIT  the same for accuracy
# make reproduce   results of benchmarks/results that the present release lacks: all are a day
# make test-bounds       those of compiled loops, every index of which is checked
# make test-mutants      small faults put into the package, and the share that tests notice
# .ci/release  builds a release, and tests it where nothing else is
# make doc     documentation, in doc/_build/html  make clean      removes what the others made
#
# Everything is installed into $(VENV). PYTHON is the interpreter that makes it. "make test" takes
# one process per processor, at most eight; with WORKERS=0 there is only one, as -s needs.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
ARGS ?=
WORKERS ?= auto

.PHONY: demo test test-slow test-nvflare test-ray test-torch test-processors test-rounding \
  test-bounds test-versions test-oldest test-next test-mutants coverage bench bench-compare \
  accuracy-compare reproduce doc lint clean

demo: $(VENV)/with-plot
	$(BIN)/python -m skpmtl $(ARGS)

# A process that is done takes over half of what another has left, so that all end together; it is
# the half at the end, so that tests of one file mostly stay where their loops are compiled.
test: export OMP_NUM_THREADS ?= 1
test: export PYTHONDONTWRITEBYTECODE :=  # the many processes that tests start read what is there
test: $(VENV)/with-test
	$(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 8 --dist worksteal -rs $(ARGS)

# Two hours of one process; ARGS="-n 2 --part 3/40": every 40th case, by two processes.
test-slow: $(VENV)/with-test
	$(BIN)/python -m pytest -m slow $(ARGS)

# An environment for each, because engines pin what they need narrowly.
FILES_nvflare = tests/federated/test_nvflare.py
FILES_ray = tests/shards
FILES_torch = -n $(WORKERS) --maxprocesses 2 tests/networks tests/fedmtl/test_estimators.py \
  tests/fedmtl/test_network.py tests/reproduction tests/test_inspection.py \
  tests/benchmarks/test_papers.py \
  -k "networks or torch or reproduction or convergence"
# The newest torch without CUDA that pip finds, else the newest.
ALSO_torch = $$($(VENV)-torch/bin/python -m pip index versions torch 2>/dev/null \
  | grep -o '[0-9.]*+cpu' | head -n 1 | sed 's/^/torch==/')

test-nvflare test-ray test-torch: test-%:
	$(MAKE) VENV=$(VENV)-$* $(VENV)-$*/made
	@if $(VENV)-$*/bin/python -m pip install --quiet --disable-pip-version-check \
	  --editable ".[$*,test]" $(ALSO_$*); then \
	  $(VENV)-$*/bin/python -m pytest $(FILES_$*) $(ARGS); \
	else echo "Skipped: the extra skpmtl[$*] cannot be installed here."; fi

# The tests whose numbers hang on the order of sums, as processors with other instructions do them;
# ARGS="--parts" deals the cases out to these processors.
test-processors: $(VENV)/with-test
	$(BIN)/python -m tests.processors $(ARGS)

# ARGS="--seeds N" for another number, "--parts" to deal the cases out to the seeds.
test-rounding: export OMP_NUM_THREADS ?= 1
test-rounding: $(VENV)/with-test
	$(BIN)/python -m tests.rounding -q -n $(WORKERS) --maxprocesses 8 --dist worksteal $(ARGS)

# ARGS="tests/kernels" for some of them.
test-bounds: $(VENV)/with-test
	$(BIN)/python -m tests.bounds $(ARGS)

# ARGS="--minutes 20 --seed 0 FILES": in copies of the checkout, by two processes.
test-mutants: $(VENV)/with-test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "coverage>=7.5"
	$(BIN)/python -m tests.mutants $(ARGS)

# The oldest release that is supported and those up to the newest, each in an environment of its
# own, with the SciPy of its time.
VERSIONS ?= 1.6 1.7 1.8
FILES_versions = tests/contract/test_scikit_learn.py tests/test_pipeline.py \
  tests/contract/test_diagram.py tests/contract/test_weights.py
test-versions: $(VERSIONS:%=test-version-%)
test-version-%:
	$(MAKE) VENV=$(VENV)-sklearn-$* $(VENV)-sklearn-$*/made
	$(VENV)-sklearn-$*/bin/python -m pip install --quiet --disable-pip-version-check \
	  --editable ".[test]" "scikit-learn==$*.*" "scipy<1.17"
	$(VENV)-sklearn-$*/bin/python -m pytest -n $(WORKERS) --maxprocesses 8 $(FILES_versions) $(ARGS)

test-oldest: export OMP_NUM_THREADS ?= 1
test-oldest:
	$(MAKE) VENV=$(VENV)-oldest $(VENV)-oldest/made
	$(VENV)-oldest/bin/python .ci/oldest > $(VENV)-oldest/oldest.txt
	$(VENV)-oldest/bin/python -m pip install --quiet --disable-pip-version-check \
	  --constraint $(VENV)-oldest/oldest.txt --editable ".[test]"
	$(VENV)-oldest/bin/python -m pytest -n $(WORKERS) --maxprocesses 8 --dist worksteal $(ARGS)

# What comes next, as far as the index has it: the newest of each, pre-releases too.
NEXT = numpy scipy scikit-learn numba llvmlite
test-next: export OMP_NUM_THREADS ?= 1
test-next:
	$(MAKE) VENV=$(VENV)-next $(VENV)-next/made
	$(VENV)-next/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[test]"
	$(VENV)-next/bin/python -m pip install --quiet --disable-pip-version-check --pre --upgrade $(NEXT)
	@$(VENV)-next/bin/python -m pip list --format freeze | grep -E "^($(subst $() ,|,$(NEXT)))="
	$(VENV)-next/bin/python -m pytest -n $(WORKERS) --maxprocesses 8 --dist worksteal $(ARGS)

# Compiled loops are not seen.
coverage: export OMP_NUM_THREADS ?= 1
coverage: $(VENV)/with-test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "pytest-cov>=5"
	$(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 8 --dist worksteal \
	  --cov skpmtl --cov-report term --cov-report xml $(ARGS)

bench: $(VENV)/with-test
	$(BIN)/python -m benchmarks.peers.exact $(ARGS)

REV ?= $(error REV=COMMIT names the commit to compare with)
# In turns, by an environment that imports the dependencies of this one.
bench-compare: BENCH ?= ^(?!errors)
accuracy-compare: BENCH ?= ^errors
accuracy-compare: FACTOR = --factor 1.002
bench-compare accuracy-compare: $(VENV)/made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . asv virtualenv
	cd benchmarks/asv && $(abspath $(BIN))/asv machine --yes && ASV_DEPENDENCIES="$$( \
	  $(abspath $(BIN))/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
	  $(abspath $(BIN))/asv continuous --interleave-rounds $(FACTOR) --bench '$(BENCH)' \
	  $(ARGS) $(REV) HEAD

reproduce: $(VENV)/with-test
	$(BIN)/python -m benchmarks.reproduce $(ARGS)

doc: $(VENV)/with-doc
	$(BIN)/python -m sphinx -W --keep-going -b html $(ARGS) doc doc/_build/html

lint: $(VENV)/with-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf .venv .venv-* build dist *.egg-info .pytest_cache .ruff_cache .coverage coverage.xml
	rm -rf doc/_build doc/auto_examples doc/generated
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp says which extra the environment holds; a changed pyproject.toml installs again.
$(VENV)/with-%: pyproject.toml setup.py $(VENV)/made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	@touch $@

.PRECIOUS: $(VENV)/made $(VENV)/with-%
$(VENV)/made:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 10))" || { echo; \
	  echo "skpmtl needs Python 3.10 or newer, but PYTHON=$(PYTHON) is missing or older."; \
	  echo "Name another one: make PYTHON=/path/to/python3 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c "import ensurepip, venv" || { echo; \
	  echo "$(PYTHON) cannot make virtual environments: its venv module is incomplete."; \
	  echo "On Debian and Ubuntu: sudo apt install python3-venv. Or name another Python:"; \
	  echo "make PYTHON=/path/to/python3 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@
