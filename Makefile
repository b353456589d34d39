# `make test` and `make quickstart` do all set-up themselves; a second run starts at once.
PYTHON ?= 3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: test test-all torture test-min quickstart experiments format lint docs wheelhouse clean

$(READY): pyproject.toml constraints.txt
	python3 -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,docs]'
	sh tools/opengl.sh
	sh tools/chromium.sh
	touch $(READY)

# Every mechanism, in a few minutes.
test: lint
	$(BIN)/python -m pytest -n 2 -m "not thorough"

# The rest, which takes longer: all pages of the documentation, the report in a browser, whole experiments. A file's
# tests stay in one process: two Ray clusters on one machine take each other's ports.
test-all: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m thorough

# Damaged files, kills at every file operation, full disks, no memory: half an hour. SEED= repeats a campaign or goes on
# with it; a short form is among the tests.
torture: $(READY)
	PYTHONPATH=tests $(BIN)/python -m torture $(if $(SEED),--seed $(SEED)) --out results/reliability/torture.json

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

quickstart: $(READY)
	$(BIN)/omrl quickstart

# Two of the paper's experiments at a size that shows that they run: a comparison and an ablation.
experiments: $(READY)
	for name in comparison-point-robot-wind dml-vs-bellman; do \
	  $(BIN)/omrl paper run $$name --scale small --at-once 2 --data experiments/data --out experiments || exit 1; \
	done

# The documentation as a site; site/index.html opens from disk (its search needs `python -m http.server -d site`).
docs: $(READY)
	rm -rf site
	$(BIN)/zensical build --strict

# The tests at the lowest versions that pyproject.toml admits.
test-min:
	python3 -m venv .venv-min
	.venv-min/bin/pip install --quiet --constraint tests/constraints-min.txt --editable '.[dev]'
	.venv-min/bin/python -m pytest -n 2

# omrl with its core, simulators and pictures for a machine without network that has torch, numpy and safetensors.
# mujoco-studio, MuJoCo's viewer, is left out: nothing here needs it.
wheelhouse: $(READY)
	rm -rf wheelhouse
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir wheelhouse .
	$(BIN)/pip download --quiet --no-deps --only-binary=:all: --python-version $(PYTHON) \
	  --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
	  --constraint constraints.txt --dest wheelhouse \
	  pydantic pydantic-core annotated-types typing-inspection typing-extensions \
	  tyro docstring-parser typeguard rich markdown-it-py mdurl pygments \
	  gymnasium farama-notifications cloudpickle mujoco mujoco-core glfw pyopengl imageio pillow packaging \
	  matplotlib contourpy cycler kiwisolver pyparsing python-dateutil six pytest pluggy iniconfig
	@du -sh wheelhouse

# The same as one archive of unpacked modules, half as large, to run a checkout from: PYTHONPATH=src:MODULES. Without
# omrl's own, and without OpenGL, which only rendering needs.
modules.tar.xz: wheelhouse
	rm -rf build/modules && mkdir -p build/modules
	for wheel in wheelhouse/*.whl; do $(BIN)/python -m zipfile -e $$wheel build/modules || exit 1; done
	rm -rf build/modules/omrl build/modules/omrl_command.py build/modules/OpenGL build/modules/matplotlib/mpl-data/sample_data
	tar -cJf $@ -C build/modules .
	@du -h $@

clean:
	rm -rf $(VENV) .venv-min wheelhouse modules.tar.xz quickstart experiments site .cache dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
