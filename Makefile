# make demo   JupyterLab on the quickstart: your GPUs, or a simulated machine where there is no driver
# make test   what has to pass before each push, with the versions in tests/constraints.txt; CONSTRAINTS= with the newest
#             PART=kernels one part: pure, kernels, frameworks, pages or notebooks
# make test-all   that and all rarer combinations, as every night
# make check  linters, formatters and types of Python and of the page's scripts; workflows
# make constraints   renew tests/constraints.txt: the newest versions of everything; KEEP=torch==2.13.0 keeps one
# make matrix the kernels' tests with the oldest and the newest versions, in .nox; ONLY=colab runs some of them
# make docs   the documentation as a site, in build/site; without a network, warnings are errors
# make bench  measurements, side by side with the alternatives; written to benchmarks/results.txt
# make test-gpu   on a machine with an NVIDIA GPU: what the code relies on, and dist/gpu/report.json
#             tests/gpu/carry.sh FOLDER makes a folder that does the same on a machine without network

PYTHON ?= python3
BIN := .venv/bin
CONSTRAINTS ?= tests/constraints.txt
# Also for what builds a package: pip reads the first before its release 25.3, and the second since.
PINNED := $(if $(CONSTRAINTS),env PIP_CONSTRAINT=$(CONSTRAINTS) PIP_BUILD_CONSTRAINT=$(CONSTRAINTS))
TIER := -m 'not nightly'
# The parts of `make test`, by what PART names them.
kernels := $(addprefix tests/,claims cluster kernel launch processes reliability restart)
frameworks := $(addprefix tests/,doctor fit frameworks measure move objects on_gpu outside)
pages := $(addprefix tests/,browser docs panel)
pure := tests $(addprefix --ignore ,$(kernels) $(frameworks) $(pages))
suite := pure kernels frameworks pages
ifneq ($(filter-out $(suite) notebooks,$(PART)),)
$(error There is no part $(PART); try one of: $(suite) notebooks)
endif
# Node.js is PyPI's, so that it is the same everywhere.
NODE := env PATH="$(CURDIR)/$(BIN):$$PATH"
NBVAL := -p nbval --nbval --nbval-current-env --nbval-sanitize-with tests/nbval.cfg
KERNELS := build/kernels
SIMULATED := -u CUDA_VISIBLE_DEVICES -u CUDA_DEVICE_ORDER -u PYTHONUNBUFFERED GPU_MAGIC_SIMULATE="8xA100-80GB clock=0"

.PHONY: demo test test-all test-suite test-notebooks test-shared-server test-moving test-measuring test-start test-gpu needs check \
    constraints matrix docs bench clean

demo: .venv-demo/installed
	@.venv-demo/bin/python -c 'import pynvml; pynvml.nvmlInit()' 2>/dev/null || { \
	    export GPU_MAGIC_SIMULATE="$${GPU_MAGIC_SIMULATE:-8xA100-80GB}"; \
	    echo "No NVIDIA driver answers here: this is a SIMULATED machine, $$GPU_MAGIC_SIMULATE."; }; \
	.venv-demo/bin/gpu-magic kernel install >/dev/null; \
	exec .venv-demo/bin/jupyter lab $$(test "$$(id -u)" = 0 && echo --allow-root) notebooks/quickstart.ipynb

# A part that fails hides none of those after it.
test: needs .venv/installed
	@$(MAKE) --no-print-directory --keep-going \
	    $(if $(filter notebooks,$(PART)),,test-suite) \
	    $(if $(filter $(suite),$(PART)),,test-notebooks test-shared-server test-moving test-measuring test-start)

test-all:
	@$(MAKE) --no-print-directory --keep-going test TIER='--hypothesis-profile night'

test-suite:
	$(BIN)/python -m pytest -n auto --dist worksteal $(TIER) $(foreach part,$(PART),$($(part)))

test-notebooks:
	env $(SIMULATED) GPU_MAGIC_CLAIMS=off $(BIN)/python -m pytest -n auto --dist loadfile $(NBVAL) notebooks \
	    --ignore notebooks/moving.ipynb --ignore notebooks/shared_server.ipynb --ignore notebooks/measuring.ipynb \
	    --ignore notebooks/start.ipynb --ignore notebooks/park.ipynb

test-shared-server:
	env $(SIMULATED) GPU_MAGIC_CLAIMS=$$(mktemp -d)/claims \
	    $(BIN)/python -m pytest $(NBVAL) notebooks/shared_server.ipynb

test-moving:
	PYTHONPATH=$$($(BIN)/python -m tests.native) $(BIN)/python -m pytest $(NBVAL) \
	    notebooks/moving.ipynb notebooks/park.ipynb

test-measuring:
	env $(SIMULATED) GPU_MAGIC_SIMULATE="2xA100-80GB own=0:12GiB:60" GPU_MAGIC_CLAIMS=off \
	    PYTHONPATH=$$($(BIN)/python -m tests.native) $(BIN)/python -m pytest $(NBVAL) notebooks/measuring.ipynb

# It names the kernel that it runs in.
test-start:
	$(BIN)/python -m gpu_magic kernel install --prefix $(KERNELS) >/dev/null 2>&1
	env $(SIMULATED) GPU_MAGIC_CLAIMS=$$(mktemp -d)/claims JUPYTER_PATH=$(KERNELS)/share/jupyter \
	    $(BIN)/python -m pytest $(filter-out --nbval-current-env,$(NBVAL)) notebooks/start.ipynb

test-gpu: .venv/installed
	$(BIN)/python -m pytest -m gpu -rs --gpu-report dist/gpu/report.json tests/gpu

needs:
	@tests/needs.sh

check: .venv/installed node_modules/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/zizmor --quiet --offline --config .github/zizmor.yml .github
	$(NODE) $(BIN)/jactionlint
	$(NODE) node_modules/.bin/biome check
	$(NODE) node_modules/.bin/tsc

matrix: .venv-matrix/installed
	.venv-matrix/bin/nox $(if $(ONLY),--keywords '$(ONLY)')

docs: .venv-docs/installed
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build

bench: needs .venv/installed
	$(BIN)/python -m benchmarks

.venv/installed: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv .venv
	$(PINNED) $(BIN)/python -m pip install --quiet --editable '.[test,check]'
	touch $@

node_modules/installed: package.json package-lock.json .venv/installed
	$(NODE) npm ci --silent
	touch $@

# Without the `+cpu` of a build: it is a matter of where pip looks.
constraints:
	rm -rf build/newest
	$(PYTHON) -m venv build/newest
	build/newest/bin/python -m pip install --quiet --editable '.[test,check]' $(KEEP)
	{ echo "# What \`make test\` installs. \`make constraints\` renews it (Python 3.11)."; \
	    build/newest/bin/python -m pip freeze --all --exclude-editable | sed -e '/^pip==/d' -e 's/+.*//'; } > tests/constraints.txt

.venv-demo/installed: pyproject.toml
	@echo "Once: JupyterLab and gpu_magic are installed in .venv-demo, which takes a minute or two."
	@$(PYTHON) -m venv .venv-demo
	@.venv-demo/bin/python -m pip install --disable-pip-version-check --editable '.[demo]'
	@PATH="$(CURDIR)/.venv-demo/bin:$$PATH" jupyter labextension develop --overwrite .
	@touch $@

.venv-docs/installed: pyproject.toml
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --editable '.[docs]'
	touch $@

.venv-matrix/installed:
	$(PYTHON) -m venv .venv-matrix
	.venv-matrix/bin/python -m pip install --quiet 'nox>=2025.2'
	touch $@

clean:
	rm -rf .venv .venv-demo .venv-docs .venv-matrix .nox build .pytest_cache .mypy_cache .ruff_cache .hypothesis dist node_modules
