# Every task of the project. A fresh machine needs make and python3 (3.10 or newer, with venv and pip), nothing else.
# All Python goes to .venv/; a step runs again only when what it depends on has changed.

PYTHON      ?= python3
PYTEST_ARGS ?=
NOX_ARGS    ?=
VENV        := .venv
BIN         := $(VENV)/bin
LOCK        := requirements/dev.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
.PHONY: help demo test test-frameworks e2e e2e-tools coverage test-matrix bench bench-check lint format lock lock-check dashboards \
	metrics-reference account-times jaeger jaeger-build collector-build clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-18s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## Show the main job: an unmodified app, a span for every tool call (no server, key or network)
	$(BIN)/otel-toolcalls demo

test: $(VENV)/.dev ## Run all tests (PYTEST_ARGS='-k name' for some)
	$(BIN)/python -m pytest -n auto --dist worksteal $(PYTEST_ARGS)

e2e: e2e-tools ## Run only the tests against real programs: Jaeger, the Collector, Prometheus, ClickHouse, Redis
	$(BIN)/python -m pytest tests/e2e $(PYTEST_ARGS)

e2e-tools: $(VENV)/.account ## Get what they can use: ClickHouse's engine; with Go, Jaeger and the Collector; with npm, grammars; with Maven, Kafka
	@if $(PYTHON) -c 'from tools import gobuild; gobuild.find_go()' 2> /dev/null; then $(MAKE) jaeger-build collector-build; fi
	@if command -v npm > /dev/null; then cd tools/grammars && npm ci --silent --no-audit --no-fund --ignore-scripts; fi
	@if command -v mvn > /dev/null; then $(PYTHON) -m tools.kafkajars > /dev/null; fi

coverage: $(VENV)/.dev ## Run the tests without the slow and the end-to-end ones, and show what they leave untouched
	$(BIN)/coverage erase
	$(BIN)/python -m pytest -m "not slow and not e2e" --cov --cov-report=term $(PYTEST_ARGS)

test-matrix: $(VENV)/.dev ## Run the fast tests on old and new SDKs and Pythons (NOX_ARGS='-s "tests(oldest, python3.10)"' for some)
	$(BIN)/nox $(NOX_ARGS)

test-frameworks: $(VENV)/.dev ## Run the newest agent frameworks against a model server on loopback
	$(BIN)/nox -s frameworks $(NOX_ARGS)

bench: $(VENV)/.dev ## Measure the cost beside every alternative, into docs/performance.md (GROUPS='ours genai' for some)
	$(BIN)/python -m benchmarks run $(GROUPS)

bench-check: $(VENV)/.dev ## Check the cost by ratios within one short run
	$(BIN)/python -m benchmarks check

lint: $(VENV)/.dev ## Check format, style, types, the direction of imports and the declared dependencies
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/deptry .

format: $(VENV)/.dev ## Format the code and mend what ruff can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.10 --all-extras --group dev pyproject.toml \
	--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'

lock: $(VENV)/.uv ## Pin the project's own environment again (UPGRADE=1 for the newest of everything)
	$(COMPILE) $(if $(UPGRADE),--upgrade) --output-file $(LOCK)

lock-check: $(VENV)/.uv ## Check that the lock is what pyproject.toml asks for
	@fresh=$$(mktemp) && trap 'rm -f "$$fresh"' EXIT && cp $(LOCK) "$$fresh" \
	&& $(COMPILE) --output-file "$$fresh" > /dev/null && diff -u $(LOCK) "$$fresh" \
	|| { echo '$(LOCK) is out of date: run make lock' >&2; exit 1; }

dashboards: $(VENV)/.dev ## Write the generated files again: Prometheus rules, Grafana dashboards, reference of the metrics
	$(BIN)/python -m dashboards.build

metrics-reference: dashboards ## Write docs/metrics.md again, from conventions.py

account-times: $(VENV)/.account ## Measure the account's SQL on 10 million generated spans (CALLS=40000 for 100,000)
	$(BIN)/python -m dashboards.account $(if $(CALLS),--calls $(CALLS))

jaeger: jaeger-build ## Build and start the real Jaeger on loopback until Ctrl-C; needs Go
	@echo "Jaeger query API   http://127.0.0.1:$${JAEGER_PORT_QUERY:-16686}   (its web UI is in released binaries and images only)"
	@echo "OTLP over gRPC     http://127.0.0.1:$${JAEGER_PORT_OTLP_GRPC:-4317}"
	@echo "OTLP over HTTP     http://127.0.0.1:$${JAEGER_PORT_OTLP_HTTP:-4318}"
	@exec "$$($(PYTHON) tools/gobuild.py --cached jaeger)" --config file:dashboards/jaeger/all-in-one.yaml

jaeger-build: ## Build the real Jaeger into the user's cache; needs Go and some minutes, once
	@$(PYTHON) tools/gobuild.py jaeger

collector-build: ## Build the OpenTelemetry Collector of tools/collector into the user's cache; needs Go and minutes, once
	@$(PYTHON) -m tools.collectorbuild

clean: ## Remove environments, caches and results in this folder (what Go built stays in the user's cache)
	rm -rf $(VENV) .nox .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage .coverage.* htmlcov dist \
		build *.egg-info otel-toolcalls*.jsonl tools/grammars/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- environments: a stamp file stands for a finished step ---------------------------------------------------------

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 10) else \
	"otel-toolcalls needs Python 3.10 or newer, and $(PYTHON) is %d.%d: make PYTHON=/path/to/python3" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo: $(VENV)/.made pyproject.toml $(LOCK)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(LOCK) -e '.[cli,anthropic,openai]'
	@touch $@

$(VENV)/.uv: $(VENV)/.made $(LOCK)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(LOCK) uv
	@touch $@

$(VENV)/.dev: $(VENV)/.uv pyproject.toml
	$(BIN)/uv pip install --quiet --python $(BIN)/python -r $(LOCK) -e .
	@touch $@

$(VENV)/.account: $(VENV)/.dev
	$(BIN)/uv pip install --quiet --python $(BIN)/python --group account -c $(LOCK)
	@touch $@
