# Every target sets itself up: a fresh machine needs only Python and g++.
#   make tour      the compiler at work on a small GPT, stage by stage
#   make test      the quick tests, and a sample of each family of slow ones
#   make test-all  every test
#   make exercise N=4.1   your answer in exercises/chapter_4.py, judged
#   make book      the book, in site/index.html
#   make serve     the book, rebuilt while you edit
#   make check     what CI runs: lint, tests, the book's own checks
#   make sweep     all of PyTorch's operators and modules, eager beside ours
#   make matrix    the tests on another Python: make matrix PYTHON=python3.13
# ARGS goes to the command: make tour ARGS="--model resnet --device cuda"
#                           make test-all ARGS="tests/guards -x"
#                           make sweep ARGS="--only sort --samples 4"

FITS   := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for p in python3 python3.12 python3.13 python3.11 python; \
	do $$p -c '$(FITS)' 2> /dev/null && echo $$p && break; done)
VENV   ?= .venv
TORCH  ?= torch==2.13.0
RUN    := $(VENV)/bin/python
# Two processes, whose idle threads leave the processor to each other.
PYTEST := OMP_WAIT_POLICY=passive $(RUN) -m pytest -n 2 --dist worksteal
MKDOCS := NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(RUN) -m mkdocs

.PHONY: help tour test test-all exercise book serve check sweep matrix clean

help:
	@sed -n '/^$$/q; s/^# //p' Makefile

tour: $(VENV)/.stamp-tour
	$(RUN) -m minicompile $(ARGS)

test: $(VENV)/.stamp-test
	$(PYTEST) --part=quick $(ARGS)

test-all: $(VENV)/.stamp-test
	$(PYTEST) $(ARGS)

exercise: $(VENV)/.stamp-test
	@test -n "$(N)" || { echo "which one? make exercise N=4.1"; exit 1; }
	$(RUN) -m pytest --mine -q --no-header -k test_$(subst .,_,$(N))_ \
		$(wildcard tests/*/test_*exercises.py) $(ARGS)

book: $(VENV)/.stamp-book
	$(MKDOCS) build --strict
	@echo "open site/index.html"

serve: $(VENV)/.stamp-book
	$(MKDOCS) serve $(ARGS)

check:
	bash .ci/run

# Goes on where the last one stopped; its findings are in build/sweep.
sweep: $(VENV)/.stamp-sweep
	$(RUN) -m chapters.measure.sweep $(ARGS)

# An environment for each version, beside the usual one.
VERSION = import sys; print("%d.%d" % sys.version_info[:2])
matrix:
	$(MAKE) test-all VENV=.venv-$$($(PYTHON) -c '$(VERSION)')

clean:
	rm -rf $(VENV) .venv-* site build *.egg-info

# An environment with torch: the one that Python has already, or TORCH.
$(VENV)/.stamp-torch:
	@test -n "$(PYTHON)" || { echo "minicompile needs Python 3.11 to 3.13: \
	make $(MAKECMDGOALS) PYTHON=/path/to/python"; exit 1; }
	@command -v g++ > /dev/null || echo "no g++ found; kernels for the CPU \
	need one (Debian, Ubuntu: apt-get install g++)"
	@echo "setting up $(VENV) with $(PYTHON); the first time takes minutes"
	@if $(PYTHON) -c 'import torch' 2> /dev/null; \
	then $(PYTHON) -m venv --system-site-packages $(VENV); \
	else $(PYTHON) -m venv $(VENV) && \
	  $(RUN) -m pip install -qq $(TORCH) numpy; fi
	@touch $@

$(VENV)/.stamp-tour: $(VENV)/.stamp-torch pyproject.toml
	@$(RUN) -m pip install -qq -e .
	@touch $@

$(VENV)/.stamp-test: $(VENV)/.stamp-torch pyproject.toml
	@$(RUN) -m pip install -qq -e '.[test,book]'
	@touch $@

$(VENV)/.stamp-sweep: $(VENV)/.stamp-test
	@$(RUN) -m pip install -qq -e '.[measure]'
	@touch $@

$(VENV)/.stamp-book: $(VENV)/.stamp-torch pyproject.toml
	@$(RUN) -m pip install -qq -e '.[book]'
	@touch $@
