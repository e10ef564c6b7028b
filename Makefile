# The shell does one thing at a time here; everything longer is in project/bootstrap.py.
# Paths are relative, so that the checkout may lie anywhere: `make -C "/path with spaces" demo` works.

.DEFAULT_GOAL := help
.PHONY: help demo analyse test test-long lint bench lock system-packages clean install-demo install-dev install-spark

# The first Python that is new enough, `.venv`'s own before all; `make PYTHON=/path/to/python3.12 …` chooses another.
PYTHON ?= $(shell for python in .venv/bin/python python3 python3.13 python3.12 python3.11 python; do \
	"$$python" -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null && echo "$$python" && break; done)
RUN = .venv/bin/python
BOOTSTRAP = $(if $(PYTHON),"$(PYTHON)" project/bootstrap.py,@echo "Python 3.11 or newer is needed, and none was found. \
	On Debian: apt-get install python3 python3-venv. Elsewhere: make PYTHON=/path/to/python" >&2; exit 1; :)

# bash knows a variable of that name, which counts: it must not reach the programs.
unexport SECONDS

help: ## Show this
	@echo "make …"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' Makefile

demo: export DEBUG := $(or $(DEBUG),true)
demo: install-demo ## Run the demo shop until Ctrl-C: [SECONDS=20] [PORT=8000]
	@$(RUN) manage.py run_demo $(if $(SECONDS),--seconds $(SECONDS)) $(if $(PORT),--port $(PORT))

analyse: export DEBUG := $(or $(DEBUG),true)
analyse: install-spark ## Let Spark write a report on the demo's log: [ARGS="--since 1h"]
	@$(RUN) manage.py run_spark_job report --save --output artifacts/report.html $(ARGS)

ifdef PG
test test-long: export DATABASE_URL := $(PG)
endif
test: install-dev ## Run the tests: [PG=postgres://…] [ARGS="-k name"]
	@$(RUN) -m pytest -m "not long" $(or $(ARGS),-n 2 --dist loadfile)

test-long: install-dev ## Run the tests that take more than a minute: [PG=…] [ARGS=…]
	@$(RUN) -m pytest -m long --timeout 1800 $(ARGS)

# Nothing here connects to a database, so none is started.
lint: export DATABASE_URL := postgres://none@127.0.0.1:1/none
lint: install-dev ## Check style, types, migrations and imports
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy
	DEBUG=true $(RUN) -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run
	$(RUN) .venv/bin/lint-imports

bench: export DEBUG := false
bench: export SECRET_KEY := $(or $(SECRET_KEY),not-a-secret-as-nothing-is-served)
bench: install-demo ## Measure publishing: [ARGS="publish --clients 32"] or [ARGS=wake]
	@$(RUN) manage.py pubsub_bench $(or $(ARGS),publish)

UV ?= uv
COMPILE = $(UV) pip compile --quiet pyproject.toml --universal --generate-hashes --no-header --no-annotate -p 3.11
lock: ## Pin the dependencies again, with uv: [ARGS=--upgrade]
	@command -v "$(UV)" >/dev/null || { echo "make lock needs uv: pip install uv, or make lock UV=/path/to/uv" >&2; exit 1; }
	$(COMPILE) --extra demo -o requirements/demo.txt $(ARGS)
	$(COMPILE) --extra dev -o requirements/dev.txt $(ARGS)
	$(COMPILE) --extra demo --extra spark -o requirements/spark.txt -c requirements/dev.txt $(ARGS)
	$(COMPILE) --extra java -o requirements/java.txt -c requirements/dev.txt $(ARGS)

system-packages: ## Install what some tests need from Debian: chromium, pgbouncer
	@$(BOOTSTRAP) system

clean: ## Stop the embedded PostgreSQL; remove its data, .venv and whatever was built
	-@test ! -x $(RUN) || $(RUN) -m project.embedded_postgres remove
	rm -rf .venv .local .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf build dist artifacts spark-warehouse *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

install-demo:
	@$(BOOTSTRAP) demo

# Java comes from a wheel where the machine has none that Spark can use.
install-dev:
	@$(BOOTSTRAP) dev java

install-spark: ## Install what Spark jobs need into .venv
	@$(BOOTSTRAP) spark java
