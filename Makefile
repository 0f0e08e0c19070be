# `make help` lists all commands. Each one sets up what it needs.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo demo-stages demo-nights demo-lake test peers mutants up down env test-all test-long test-versions test-cluster bench fuzz docs lint lock sbom setup setup-development setup-tests setup-cluster-tests corpus

# Two files of tests run at a time, the longest first: see tests/conftest.py. The unit tests go first and alone, without
# Spark or Airflow in their process: most mistakes are told in a minute.
PYTEST := python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
IN_VENV := . .venv/environment.sh &&
# What fails beside another test runs once more, alone; what fails then, too, is red. Both are printed.
run_tests = $(IN_VENV) { $(1) || env -u SKEWLESS_TESTS_UNTIL $(1) -n 0 --last-failed --last-failed-no-failures none --maxfail 3; }
# For all platforms and Pythons; without the addresses of a registry, without what lays its files over pyspark's, and
# without what jsonschema would compile 38 grammars of addresses with: 3.4 s in each process of Airflow and of Spark.
LOCK := .venv/bin/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-package pyspark-client \
  --no-emit-package rfc3987-syntax --no-emit-package lark pyproject.toml
# All but what holds back others: the provider of Google, which a test lays aside.
LOCKED := bench cluster databricks dev emr_serverless kubernetes livy package

help: ## List all commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

demo: setup ## Run the nightly job over Python's own sources in Airflow, and print the result and every decision
	@$(IN_VENV) python -m deploy.local demo

demo-stages: setup ## Run two jobs in small stages and look at the decisions: key buckets split and merged, tokens moved, reducers that join and leave
	@$(IN_VENV) python -m deploy.local demo-stages

demo-nights: setup corpus ## Run a window of four days over twelve days night by night, one file late, and print what was read and what was reused
	@$(IN_VENV) python -m examples.nights

demo-lake: setup corpus ## Publish days of an Iceberg table in an embedded catalog, go back to a version of one, and print how to read it
	@$(IN_VENV) python -m examples.lake

test: setup-tests ## Run all tests except the long ones (nine minutes): core, leases, Spark, a DAG in Airflow, pages
	@$(IN_VENV) $(PYTEST) -m "not long" tests/unit
	@$(call run_tests,$(PYTEST) -m "not long" --ignore tests/unit)

test-all: test test-long test-cluster ## Run all tests, with the cluster and the browser

test-long: setup-tests ## Run the long tests, except those of test-cluster; hours
	@$(call run_tests,$(PYTEST) -m long --ignore tests/cluster)

test-versions: setup-tests ## Run the quick Spark tests on each version of Spark and Java; VERSIONS="3.5.9 4.0.5", JAVAS=21, SAMPLE=1 for minutes of two, ONLY=file
	@$(IN_VENV) python -m tests.spark_versions $(if $(VERSIONS),--versions $(VERSIONS)) $(if $(JAVAS),--javas $(JAVAS)) \
	  $(if $(SAMPLE),--sample) $(if $(ONLY),--files $(ONLY))

mutants: setup-tests ## Plant faults in a copy of the code, one at a time, and print those that no test catches (an hour); ONLY=word for some
	@$(IN_VENV) python -m tests.planted $(if $(ONLY),--only $(ONLY))

test-cluster: setup-cluster-tests ## Run the tests of the cluster and of the pages in a browser; installs PostgreSQL and Chromium; ONLY=test_browser.py for one file
	@$(call run_tests,python -m pytest tests/cluster$(if $(ONLY),/$(ONLY)))

up: setup ## Start Airflow with its UI on port 8080 (or SKEWLESS_PORT) and print how to log in
	@$(IN_VENV) python -m deploy.local up

down: setup ## Stop what make up started
	@$(IN_VENV) python -m deploy.local down

env: ## Write .env with random secrets for docker compose up
	@python3 deploy/docker/make_env.py

bench: setup-development ## Measure against baselines; ONLY=B3 for one row, SCALE=0.1 for a tenth of the input, LONG=1 for B2 with T* = 60 s
	@$(IN_VENV) python -m benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(SCALE),--scale $(SCALE)) $(if $(LONG),--long)

fuzz: setup-development ## Play RUNS=100 random jobs and NIGHTS=20 sequences of nights of SEED=1 against plain Python; ONLY=17 or ONLY=nights-4 for one again
	@$(IN_VENV) python -m tests.fuzz --runs $(or $(RUNS),100) --sequences $(or $(NIGHTS),20) --seed $(or $(SEED),1) $(if $(ONLY),--only $(ONLY))

docs: setup ## Write docs/spec.md and docs/spec.schema.json, the reference of job specs, from the code
	@$(IN_VENV) python docs/spec_reference.py

peers: setup-tests ## Read the Parquet files and Delta tables of other projects in DIR=folder in every way, and print what is not read as others do; ONLY=word for some
	@$(IN_VENV) python -m tests.peers $(DIR) $(if $(ONLY),--only $(ONLY))

lint: setup-development ## Check style, types and import rules
	@$(IN_VENV) ruff check . && ruff format --check . && mypy && lint-imports

lock: setup ## Write both locks from pyproject.toml; what they hold stays as it is, but for UPGRADE=package
	@$(LOCK) $(addprefix --extra ,$(LOCKED)) $(if $(UPGRADE),--upgrade-package $(UPGRADE)) -o requirements-test.lock
	@cp requirements-test.lock requirements.lock && $(LOCK) --extra cluster -o requirements.lock

sbom: setup-development ## Write sbom.json (or INTO=file), the bill of materials of requirements.lock in the format CycloneDX
	@$(IN_VENV) python -W ignore -m cyclonedx_py requirements --pyproject pyproject.toml --output-reproducible \
	  -o $(or $(INTO),sbom.json) requirements.lock

setup:
	@.ci/setup.sh

setup-development:
	@.ci/setup.sh development

setup-tests:
	@.ci/setup.sh development

setup-cluster-tests:
	@.ci/setup.sh development postgresql chromium

corpus: setup
	@$(IN_VENV) python -m examples.demo_corpus
	@$(IN_VENV) python -m examples.drifting_orders
