# `make help` lists all commands. Each one sets up what it needs.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test readers mutants up down cluster cluster-down env test-all test-long test-cluster bench faults soak docs lint setup setup-tests setup-cluster setup-cluster-tests corpus

# Two files of tests run at a time; tests/conftest.py puts the longest first.
PYTEST := python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
IN_VENV := . .venv/environment.sh &&

help: ## List all commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

demo: setup corpus ## Run the nightly job over Python's own sources in Airflow and show what came out
	@$(IN_VENV) python -m deploy.local demo

test: setup-tests ## Run the tests but the long ones (ten minutes): units, leases, Spark, a DAG in Airflow, pages, some faults
	@$(IN_VENV) $(PYTEST) -m "not long"

test-all: test test-long test-cluster ## Run all tests (forty minutes)

test-long: setup-tests ## Run those that make test leaves out, but for those of test-cluster
	@$(IN_VENV) $(PYTEST) -m long --ignore tests/cluster

mutants: setup-tests ## Plant faults in a copy of the code, one at a time, and print those that their test misses (an hour); ONLY=word for some
	@$(IN_VENV) python -m tests.planted $(if $(ONLY),--only $(ONLY))

test-cluster: setup-cluster-tests ## Run the tests of the cluster and of the pages in a browser: PostgreSQL, Chromium
	@$(IN_VENV) python -m pytest tests/cluster

up: setup ## Start Airflow with its UI on port 8080 (SKEWLESS_PORT) and say how to log in
	@$(IN_VENV) python -m deploy.local up

down: setup ## Stop it
	@$(IN_VENV) python -m deploy.local down

env: ## Write .env with random secrets, for docker compose up
	@python3 deploy/docker/make_env.py

cluster: setup-cluster ## Start the services of docker-compose.yml as processes: PostgreSQL, Airflow, Spark with two workers
	@$(IN_VENV) python -m deploy.cluster up

cluster-down: setup ## Stop them
	@$(IN_VENV) python -m deploy.cluster down

bench: setup ## Measure against baselines; ONLY=B3 for one row, SCALE=0.1 for a look, LONG=1 for B2 with T* = 60 s
	@$(IN_VENV) python -m benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(SCALE),--scale $(SCALE)) $(if $(LONG),--long)

faults: setup ## Break runs in every way we know and write docs/faults.md (an hour); SEED=17 for one trial again
	@$(IN_VENV) python -m tests.faults $(if $(SEED),--seed $(SEED),--table docs/faults.md)

soak: setup ## Trigger 20 runs at once and 200 in a row in Airflow and write docs/load.md (an hour and a quarter); RUNS=20 for a look
	@$(IN_VENV) python -m tests.load $(if $(RUNS),--runs $(RUNS),--table docs/load.md)

docs: setup ## Write docs/spec.md and docs/spec.schema.json, the reference of job specs, from its models
	@$(IN_VENV) skewless spec-reference >.venv/spec.md && skewless spec-reference --schema >.venv/spec.schema.json && \
	  mv .venv/spec.md .venv/spec.schema.json docs/

readers: setup ## Read a day in four ways (pyarrow twice, DuckDB, polars), READS=3000 times each, while it is published every EVERY=5 seconds (two minutes)
	@$(IN_VENV) python -m tests.publication $(if $(EVERY),--every $(EVERY)) $(if $(READS),--reads $(READS))

lint: setup ## Check style, types and import rules
	@$(IN_VENV) ruff check . && ruff format --check . && mypy && lint-imports

setup:
	@.ci/setup.sh

setup-tests:
	@.ci/setup.sh redis

setup-cluster:
	@.ci/setup.sh postgresql

setup-cluster-tests:
	@.ci/setup.sh postgresql chromium

corpus: setup
	@$(IN_VENV) python -m examples.demo_corpus
