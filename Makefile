# On a fresh machine with python3, venv and make, start with `make demo` or `make test`.

PYTHON ?= python3
VENV ?= .venv
LOWEST ?= .venv-lowest
# CONSTRAINTS=/dev/null installs the newest releases instead: on Linux a torch with gigabytes of CUDA.
CONSTRAINTS ?= train/constraints.txt
BIN := $(VENV)/bin

.PHONY: install test lint types test-newest test-lowest test-slurm test-faults train train-laptop demo study benchmark figures \
	notebooks docs docs-serve test-package clean

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml train/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) --editable '.[atari,minigrid,train,analysis,notebooks,sb3,cluster,dev]'
	touch $@

test: lint types test-newest test-lowest

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

# A file's tests share fixtures that take seconds, so each file goes to one worker. tests/conftest.py
# puts the slow files first: no worker is left with one at the end.
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder

test-newest: install
	$(BIN)/python -m pytest $(PARALLEL) --cov --cov-report=term:skip-covered --cov-fail-under=97

# The core alone: the lowest supported Gymnasium, and no extras.
test-lowest: $(LOWEST)/installed
	$(LOWEST)/bin/python -m pytest $(PARALLEL) tests

$(LOWEST)/installed: pyproject.toml
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/pip install --quiet 'gymnasium==1.1.0' 'hypothesis>=6.100' 'pytest>=8.0' 'pytest-xdist>=3.5'
	$(LOWEST)/bin/pip install --quiet --editable .
	touch $@

# The sweep on a one-node SLURM set up for the test. Needs root and Debian; otherwise skipped.
test-slurm: install
	$(BIN)/pip install --quiet --editable '.[cluster]'
	$(BIN)/python scripts/slurm_node.py --install -- $(BIN)/python -m pytest tests/research/test_slurm.py \
		|| { code=$$?; test $$code -eq 77 && echo "Skipped: no SLURM here."; }

# Random kills, I/O errors and damaged files, for 20 minutes on all cores. The seed makes them
# reproducible: ARGS="--seed 2 --first 17 --cases 1" repeats one of them.
test-faults: install
	$(BIN)/python -m tests.faults $(ARGS)

# The main job: ADOPS on Montezuma's Revenge. Add flags with ARGS="...".
train: install
	$(BIN)/python train/ppo_rnd.py --shaping adops $(ARGS)

# The paper's game from RAM, for a laptop: under an hour of one quiet core, and a picture.
train-laptop: install
	$(BIN)/python train/laptop.py $(ARGS)

# The raw bonus against ADOPS in one picture; about three minutes on two cores.
demo: install
	$(BIN)/python train/demo.py $(ARGS)

# Every method on the small envs, and the report; about six hours on two cores. Rerun to continue.
study: install
	$(BIN)/python -m research.study --tier laptop $(ARGS)

benchmark: install
	$(BIN)/python benchmarks/wrapper_overhead.py
	$(BIN)/python benchmarks/wrapper_overhead.py --memory
	$(BIN)/python benchmarks/tensor_steps.py
	$(BIN)/python benchmarks/tensor_steps.py --time
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/tabular.py
	$(BIN)/python benchmarks/td_critic_cost.py
	$(BIN)/python benchmarks/replay_cost.py
	$(BIN)/python benchmarks/train_speed.py --methods none adops
	$(BIN)/python benchmarks/ram_speed.py
	$(BIN)/python benchmarks/gpu_work.py -- --shaping adops
	$(BIN)/python benchmarks/scaling.py

# The pictures of the README and the docs; those of training runs come from committed data.
figures: install
	$(BIN)/python docs/_start_page.py
	$(BIN)/python -m research.figures.methods
	$(BIN)/python -m research.figures.gallery
	$(BIN)/python -m research.figures.inspection $(ARGS)
	$(BIN)/python -m research.figures.sb3_curves --draw
	$(BIN)/python -m research.figures.off_policy docs/data/off_policy_study.csv
	$(BIN)/python -m research.external runs/external --report
	$(BIN)/python -m research.figures.action_prob docs/data/montezuma_action_prob.csv \
		--out docs/images/montezuma_action_prob.png
	$(BIN)/python -m research.figures.montezuma_debt docs/data/montezuma_debt.csv \
		--out docs/images/montezuma_debt.png
	$(BIN)/python -m research.figures.pixels docs/data/pixels_kung_fu_master.csv \
		--title "Kung-Fu Master from pixels, RND bonus, one run each" \
		--out docs/images/pixels_kung_fu_master.png

# All notebooks in full, including a training run on Montezuma's Revenge: about ten minutes.
notebooks: install
	$(BIN)/python notebooks/build.py run --keep notebooks/executed

# The documentation site into site/, warnings as errors.
docs: install
	$(BIN)/pip install --quiet --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The site at http://127.0.0.1:8000, rebuilt whenever a page is saved.
docs-serve: install
	$(BIN)/pip install --quiet --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

# Wheel and sdist in clean environments: the core alone, and with each extra. Takes some minutes.
test-package: install
	$(BIN)/python scripts/test_package.py $(ARGS)

clean:
	rm -rf $(VENV) $(LOWEST) .mypy_cache .pytest_cache .ruff_cache .coverage
