# A target makes the virtual environment that it needs, or adds extras to it: DIR/with-EXTRAS at the end of this file.
PYTHON ?= python3
# The folder of programs in every environment.
BIN := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
VENV := .venv
NPFORMER := $(VENV)/$(BIN)/npformer
TORCH_VENV := $(VENV)-torch
CUPY_VENV := $(VENV)-cupy
CUDA := 13
GPU_VENV := $(VENV)-gpu$(CUDA)
# Two targets at once would install into one environment.
.NOTPARALLEL:

.PHONY: help copy gpt translate chat search docs test-docs test test-slow test-torch test-models test-cupy test-wheel lint bench gpu test-gpu bench-gpu clean

# What follows "## " behind a target, and in the lines below it, is the help; "### " begins a heading.
help:
	@sed -n -e 's/^\([a-z-]*\):.*  ## /  make \1	/p' -e 's/^## /	/p' -e '/^### /{x;p;x;s/^### //p;}' $(MAKEFILE_LIST) | expand -t 20
	@echo
	@echo "The first time, a target also installs packages and compiles kernels, which takes a minute or two more."

### To see what it does:

copy: $(VENV)/with-plot,progress  ## train a Transformer to copy, and look at what it does (a minute)
	$(NPFORMER) copy

# The 29,000 captions of Multi30k, in two languages.
GET_CAPTIONS = $(NPFORMER) get-multi30k --langs en,fr --out data/multi30k $(if $(MULTI30K),--from $(MULTI30K))
# In a second run, a training goes on.
GO_ON = $(if $(wildcard $(1)/last.safetensors),--resume)

MINUTES := 10
translate: $(VENV)/with-translation  ## train on Multi30k for ten minutes, then translate English to French (downloads 2 MB);
## again: go on for ten more; MINUTES=80 for longer; MULTI30K=DIR for a local copy of the text
	$(GET_CAPTIONS)
	$(NPFORMER) train-translation --data data/multi30k --src en --tgt fr --out runs/en-fr \
		--minutes $(MINUTES) $(call GO_ON,runs/en-fr)
	$(NPFORMER) translate --model runs/en-fr "A man is riding a bicycle."
	$(NPFORMER) evaluate --model runs/en-fr --data data/multi30k --src en --tgt fr --split val

gpt: $(VENV)/with-checkpoint,plot,progress  ## train a language model on text for two minutes, and let it write (downloads 2 MB);
## TEXT=FILE for a text of yours; again: go on, if it was interrupted
ifeq ($(origin TEXT),command line)
	$(NPFORMER) train-gpt --text $(TEXT) --out runs/gpt $(call GO_ON,runs/gpt)
else
	$(GET_CAPTIONS)
	$(NPFORMER) train-gpt --text data/multi30k/train.en.gz --held-out data/multi30k/val.en.gz --out runs/gpt \
		$(call GO_ON,runs/gpt)
	$(NPFORMER) generate --model runs/gpt "A man is"
endif

chat: $(VENV)/with-pretrained  ## talk with SmolLM2, a language model of 135 million weights (downloads its 93 MB)
	$(NPFORMER) get-model smollm2
	$(NPFORMER) chat

FILES = README.md docs/guides/*.md docs/attention/*.md docs/decoding/*.md
export QUERY = how fast is it?
search: $(VENV)/with-pretrained  ## search in README.md and the guides by meaning: QUERY="how fast is it?" (downloads 83 MB);
## FILES="notes.txt more.md" for files of yours
	$(NPFORMER) get-model minilm
	$(NPFORMER) search $(FILES) --query "$$QUERY"

### What a change has to pass (.ci/run runs all of it):

lint: $(VENV)/with-dev,nvrtc  ## check the style and the types
	$(VENV)/$(BIN)/ruff check .
	$(VENV)/$(BIN)/ruff format --check .
	$(VENV)/$(BIN)/mypy

# Two processes side by side, on one thread each; what one of them compiles, the other finds on disk.
PYTEST = PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 $(1)/$(BIN)/python -m pytest -q -rs -n 2 --dist loadfile --no-loadscope-reorder
OF_THE_SITE := tests/browser tests/documents/test_notebook.py
test: $(VENV)/with-dev,nvrtc  ## run every test but those of the site (three to five minutes)
	$(call PYTEST,$(VENV)) $(addprefix --ignore=,$(OF_THE_SITE))
	@echo "make test-slow runs what is slow and rare: faults at random moments, and whether tests notice a lost kernel"

# Faults at random moments, then the tests themselves: do they notice a kernel that does not run? (Whether they notice a
# wrong gradient, tests/tools/mutate_backward.py finds out in half an hour.)
# Another SEED draws others.
SEED := 0
SLOW = $(VENV)/$(BIN)/python tests/tools/$(1).py --seed $(SEED)
test-slow: $(VENV)/with-dev,nvrtc  ## what is slow and rare: faults at random moments, kernels that do not run (two minutes)
	$(call SLOW,forge_checkpoints) --files 200
	$(call SLOW,forge_pretrained) --files 200
	$(call SLOW,kill_saving) --kills 60 --full 10
	$(call SLOW,interrupt_training) --interrupts 50
	$(call SLOW,fork_training) --forks 20
	$(call SLOW,disturb_training) --rounds 8
	$(call SLOW,compare_threads) --models 4 --threads 1,2,3
	$(call SLOW,fuzz_operations) --calls 8
	$(call SLOW,mutate_exercises) --sample 60
	$(call SLOW,sabotage_kernels) --sample 4

TORCH_TESTS = $(shell grep -rlE 'importorskip\("(torch|onnx|transformers|sentence_transformers|ctranslate2)"\)' tests)
test-torch: $(TORCH_VENV)/with-dev,torch  ## compare with PyTorch and with ONNX's test cases, which it installs for that
	$(call PYTEST,$(TORCH_VENV)) $(TORCH_TESTS)

# Every figure that needs no training is drawn; a warning is an error. (The examples of pages are tests of make test.) It
# begins afresh: Sphinx reads only pages that have changed, and would repeat no warning.
docs: $(VENV)/with-docs  ## build the book and the reference as a site: docs/_build/index.html (a few minutes, mostly silent)
	OPENBLAS_NUM_THREADS=1 $(VENV)/$(BIN)/python scripts/figures/draw_figures.py
	rm -rf docs/_build docs/api/generated
	OPENBLAS_NUM_THREADS=1 $(VENV)/$(BIN)/sphinx-build -j 2 --fail-on-warning --keep-going --quiet docs docs/_build

# In two browsers without a window: Debian's packages, which root can install. Each takes the other's tests when it has
# done its own.
test-docs: docs  ## load every page of it in Chromium (which it installs on Debian, if root runs it), run its notebook
	command -v chromedriver > /dev/null || { apt-get update --quiet && apt-get install --yes --quiet chromium chromium-driver; } \
		|| echo "no chromedriver, and it could not be installed: the tests in the browser are skipped"
	$(VENV)/$(BIN)/python -m pytest -q -rs -n 2 --dist worksteal $(OF_THE_SITE)

### For some changes:

test-models: $(TORCH_VENV)/with-dev,torch  ## compare both models with the library transformers (downloads both, and PyTorch)
	$(TORCH_VENV)/$(BIN)/npformer get-model smollm2
	$(TORCH_VENV)/$(BIN)/npformer get-model minilm
	$(TORCH_VENV)/$(BIN)/python -m pytest -q -rs tests/models_that_exist docs/descendants/by-hand.md

# Real CuPy on a make-believe CUDA. FMA=0 rounds each product, as the processor's own results do; CC=75: an older GPU.
# Not what takes hours without a GPU, nor what does not need CuPy.
FMA := 1
CC := 90
CUPY_TEST = MAKE_BELIEVE_FMA=$(FMA) MAKE_BELIEVE_CC=$(CC) NPFORMER_GPU=1 PYTHONPATH=tests/cupy_without_gpu \
	$(CUPY_VENV)/$(BIN)/python -m pytest -q -rs -p cupy_without_gpu
test-cupy: $(CUPY_VENV)/built  ## run the tests of the GPU backend on CuPy itself, without a GPU (builds CuPy, ten minutes)
	$(CUPY_VENV)/$(BIN)/python tests/cupy_without_gpu/build.py $(CUPY_VENV)/cupy --libraries
	$(CUPY_TEST) tests/cupy_without_gpu
	$(CUPY_TEST) tests/gpu -k "not compile_by_themselves"
	$(CUPY_TEST) tests/operations/test_parity.py tests/operations/test_poison.py -k gpu

# As people get it: the wheel in an empty environment, and the tests of the source distribution without its package.
# WITH="numpy==2.0.0 numba==0.61.0": versions that are not the newest.
test-wheel:  ## build the package for PyPI, and run every test on what pip installs from it (five minutes)
	rm -rf build dist
	$(PYTHON) -m venv build/release
	build/release/$(BIN)/python $(INSTALL) build twine check-wheel-contents
	build/release/$(BIN)/python -m build
	build/release/$(BIN)/python -m twine check --strict dist/*
	build/release/$(BIN)/check-wheel-contents dist
	$(PYTHON) -m venv build/wheel
	build/wheel/$(BIN)/python $(INSTALL) "$$(echo dist/*.whl)[dev,nvrtc]" $(WITH)
	mkdir build/source && tar -xzf dist/*.tar.gz -C build/source --strip-components 1 && rm -r build/source/npformer*
	cd build/source && export PYTHONPATH="$$PWD" && $(call PYTEST,../wheel) && $(call PYTEST,../wheel) --pyargs npformer

bench: $(TORCH_VENV)/with-bench  ## short benchmarks against PyTorch, JAX, CTranslate2 and transformers (it installs them)
	$(TORCH_VENV)/$(BIN)/python scripts/bench/bench_train.py --quick
	$(TORCH_VENV)/$(BIN)/python scripts/bench/bench_attention.py --quick
	$(TORCH_VENV)/$(BIN)/python scripts/bench/bench_ops.py --quick
	$(TORCH_VENV)/$(BIN)/python scripts/bench/bench_decode.py --quick

gpu:
	@nvidia-smi > /dev/null || { echo "there is no NVIDIA GPU: nvidia-smi finds none"; exit 1; }

test-gpu: $(GPU_VENV)/with-dev,cuda$(CUDA)x  ## on an NVIDIA GPU: its tests and a training (installs CuPy for CUDA 13; CUDA=12 for 12)
	NPFORMER_GPU=1 $(GPU_VENV)/$(BIN)/python -m pytest -q -rs tests/operations/test_parity.py tests/operations/test_poison.py -k gpu
	NPFORMER_GPU=1 $(GPU_VENV)/$(BIN)/python -m pytest -q -rs tests/gpu
	$(GPU_VENV)/$(BIN)/python scripts/train_copy.py --backend gpu

bench-gpu: $(GPU_VENV)/with-bench-cuda$(CUDA)x  ## on an NVIDIA GPU: training steps and attention against PyTorch (it installs it)
	$(GPU_VENV)/$(BIN)/python scripts/bench/bench_gpu.py --json runs/bench_gpu.json

### To begin again:

clean:  ## remove what the other targets made, but for runs/, data/ and models/
	rm -rf docs/_build docs/api/generated $(VENV) $(VENV)-* build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What installs extras of setup.cfg into an environment, for instance .venv/with-dev,nvrtc. One environment has all of
# them, but those of PyTorch, of a CuPy that is built and of one for a GPU: tests run without these, too.
INSTALL := -m pip install --quiet --no-compile --disable-pip-version-check
with-%: setup.cfg pyproject.toml
	@echo "once: packages are installed into $(@D), up to a minute"
	$(PYTHON) -m venv $(@D)
	$(@D)/$(BIN)/python $(INSTALL) --editable '.[$(*F)]'
	touch $@

# On Linux, PyPI's PyTorch comes with gigabytes of GPU libraries. If pip is told of a folder of wheels (PIP_FIND_LINKS)
# that has one, that is taken; else PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu saves the download.
$(TORCH_VENV)/with-dev,torch $(TORCH_VENV)/with-bench: | $(TORCH_VENV)/torch-of-a-folder
$(TORCH_VENV)/torch-of-a-folder:
	$(PYTHON) -m venv $(@D)
	$(@D)/$(BIN)/python $(INSTALL) --no-index --no-deps torch 2> /dev/null || true
	touch $@

$(GPU_VENV)/with-dev,cuda$(CUDA)x $(GPU_VENV)/with-bench-cuda$(CUDA)x: | gpu

$(CUPY_VENV)/built: $(CUPY_VENV)/with-dev tests/cupy_without_gpu/build.py
	$(CUPY_VENV)/$(BIN)/python tests/cupy_without_gpu/build.py $(CUPY_VENV)/cupy
	touch $@
