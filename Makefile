# `make help` lists the targets. Everything is installed in .venv, from lock files with hashes; torch for tests, on request
# only, in .venv-torch. Only the Debian packages of tests and benchmarks are installed in the system, and only where that
# starts nothing (see .ci/packages).

PYTHON ?= python3
ARGS :=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet
RUNTIME := $(VENV)/runtime.stamp
DEV := $(VENV)/dev.stamp
PYTEST := $(BIN)/python -m pytest -p tests.helpers.skips --numprocesses=auto --dist=loadfile --no-loadscope-reorder

# Programs that tests use, and the Debian package of each. A test whose program is missing is skipped and counted.
TEST_PROGRAMS := prometheus:prometheus promtool:prometheus prometheus-alertmanager:prometheus-alertmanager \
    amtool:prometheus-alertmanager snmpd:snmpd snmpget:snmp redis-server:redis-server ip:iproute2 ethtool:ethtool tc:iproute2 \
    ibsim:ibsim-utils opensm:opensm ibnetdiscover:infiniband-diags perfquery:infiniband-diags mosquitto:mosquitto dot:graphviz \
    shellcheck:shellcheck man:man-db
BENCH_PROGRAMS := prometheus-node-exporter:prometheus-node-exporter prometheus-snmp-exporter:prometheus-snmp-exporter
# For its guest the lab takes a kernel from Debian, and builds two of its modules.
LAB_PROGRAMS := qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio depmod:kmod xz:xz-utils \
    gcc:gcc make:make ip:iproute2 rdma:iproute2 ethtool:ethtool ib_send_bw:perftest ibv_rc_pingpong:ibverbs-utils \
    lspci:pciutils setpci:pciutils /usr/lib/cni/macvlan:containernetworking-plugins

.DEFAULT_GOAL := help
.PHONY: help run demo test test-all test-jobs lab lint types bench docs package pictures lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "ARGS='…' is passed on to the program; PYTHON=… chooses the interpreter (3.11 or newer) that .venv is made of."

run: $(RUNTIME) ## serve the metrics of this host; flags in ARGS, such as ARGS='--web.listen-address=:9000'
	@exec $(BIN)/fabric-exporter run $(ARGS)

demo: $(RUNTIME) ## run a simulated cluster, its exporters, Prometheus and Alertmanager; faults in ARGS, see ARGS=--help
	@exec $(BIN)/fabric-exporter demo-cluster $(ARGS)

test: $(DEV) ## run the tests but the slow ones, in parallel by file; skipped ones are counted by what they need
	@.ci/packages $(TEST_PROGRAMS)
	@$(PYTEST) -m "not slow and not job" $(ARGS)

test-all: $(DEV) ## run the slow tests too
	@.ci/packages $(TEST_PROGRAMS)
	@PYTHON=$(PYTHON) .ci/torch
	@$(PYTEST) -m "not job and not alone" $(ARGS)
	@$(PYTEST) --numprocesses=0 -m alone $(ARGS) || [ $$? -eq 5 ]  # 5: there is none in ARGS

test-jobs: $(DEV) ## judge real training jobs of torch, one after the other, for 15 minutes
	@PYTHON=$(PYTHON) .ci/torch
	@$(PYTEST) --numprocesses=0 -m job $(ARGS)

lab: $(DEV) ## run the tests that need RDMA and network cards, in an emulated guest that has them
	@.ci/packages $(LAB_PROGRAMS)
	@tests/lab/run $(ARGS)

lint: $(DEV) ## check style and format
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: $(DEV) ## check types
	@$(BIN)/mypy
	@$(BIN)/mypy alerts
	@$(BIN)/mypy deploy/helm
	@$(BIN)/mypy deploy/compose
	@$(BIN)/mypy deploy/packages

bench: $(DEV) ## measure; see benchmarks/README.md
	@.ci/packages $(TEST_PROGRAMS) $(BENCH_PROGRAMS)
	@$(BIN)/python benchmarks/run.py $(ARGS)

docs: $(DEV) ## generate what is made from the code: docs/metrics.md, shell completion, the boards, the alerts, the manifests
	@$(BIN)/python docs/generate.py
	@$(BIN)/python dashboards/build.py
	@$(BIN)/python alerts/build.py
	@$(BIN)/python deploy/helm/build.py
	@$(BIN)/python deploy/compose/build.py

package: $(DEV) ## build the Debian package in dist, for the Python of this distribution; see deploy/README.md
	@$(BIN)/python deploy/packages/build.py $(ARGS)

# Needs node, npm, Chromium, Prometheus and mosquitto, and ten minutes; no other target and no test needs it.
pictures: $(RUNTIME) ## take pictures of the boards from two demos, without Grafana; see dashboards/pictures/README.md
	@$(BIN)/python dashboards/pictures/make.py $(ARGS)

lock: $(DEV) ## bring the locks up to date with pyproject.toml; ARGS=--upgrade takes newer versions
	@$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
	    --no-header --no-annotate --quiet -o requirements.txt $(ARGS)
	@$(BIN)/uv pip compile pyproject.toml --extra pods --universal --python-version 3.11 --generate-hashes \
	    --no-header --no-annotate --quiet -o deploy/requirements-image.txt $(ARGS)
	@$(BIN)/uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
	    --no-header --no-annotate --quiet -o requirements-dev.txt $(ARGS)

clean: ## remove .venv and all that was built
	@rm -rf $(VENV) .venv-torch build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@rm -rf dashboards/pictures/node_modules dashboards/pictures/dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# pip is the last thing that venv installs: where it is, the environment is whole.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "fabric-exporter needs Python 3.11 or newer, and '$(PYTHON)' is none: make PYTHON=python3.12 …" >&2; exit 1; }
	@echo "making $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV)

# The project itself is built by the locked back end, and linked, so that the checkout is what runs.
define INSTALL
@echo "installing $(1)"
@$(PIP) --require-hashes -r $(1) -r deploy/requirements-build.txt
@$(PIP) --no-deps --no-build-isolation --editable .
@touch $@
endef

$(RUNTIME): requirements.txt deploy/requirements-build.txt pyproject.toml | $(BIN)/pip
	$(call INSTALL,requirements.txt)

$(DEV): requirements-dev.txt deploy/requirements-build.txt pyproject.toml | $(BIN)/pip
	$(call INSTALL,requirements-dev.txt)
