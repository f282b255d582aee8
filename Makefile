# Spillway: what a developer types. `make` alone prints this list.
.DEFAULT_GOAL := help

# The system's Python, else the newest that really runs and can make a virtual environment; PYTHON=... overrides.
# Distributions build theirs with profile-guided optimization; one that was built by hand has seldom had it.
ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell for p in /usr/bin/python3 python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && exec echo $$p; \
	done; echo python3)
endif
SERVICES := $(PYTHON) -m tests.services
INSTALL := $(PYTHON) -m tests.services.environment
VENV := .venv/bin

# What `manage.py check --deploy` is asked about: a machine that faces the internet.
PRODUCTION := DEBUG=0 ALLOWED_HOSTS=spillway.example CSRF_TRUSTED_ORIGINS=https://spillway.example \
	SECRET_KEY=$$($(VENV)/python -c 'import secrets; print(secrets.token_urlsafe(50))')

.PHONY: help setup run prerequisites test quick services services-down check docs bench scale crash proof drill \
	screenshots release requirements clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 22

setup: ## .venv with everything for development
	@$(INSTALL) test --try postgres mysql cassandra

run: ## the whole platform on SQLite and an embedded broker; FOR=60 ends after 60 s, PORT=8001 runs beside another
	@$(INSTALL) demo
	@$(VENV)/python manage.py run_all --demo --with-parent $(if $(FOR),--for $(FOR)) $(if $(PORT),--port $(PORT))

prerequisites: ## what a bare Debian machine lacks for `make setup` and `make test` (as root)
	@$(SERVICES) prerequisites

test: ## the suite on SQLite and every server that is given or runs (REQUIRE=, LEGS= start more; JOBS=, ARGS=)
	@$(SERVICES) prerequisites
	@$(INSTALL) test --try postgres mysql cassandra
	@$(VENV)/python -m tests.legs $(ARGS)

quick: ## what needs no database, broker, browser or child process, in a minute (ARGS=)
	@$(INSTALL) test
	@$(VENV)/python -m pytest --quick --numprocesses=2 --quiet $(ARGS)

services: ## start PostgreSQL, MariaDB, MySQL, Kafka, Kafka Connect with Debezium, Cassandra and a schema registry, print their addresses
	@$(SERVICES) prerequisites
	@$(SERVICES) up

services-down: ## stop exactly those (WIPE=1 removes their data)
	@$(SERVICES) down $(if $(WIPE),--wipe)

check: docs ## style, types, migrations, deployment settings, the site's links
	@$(INSTALL) test
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
	$(VENV)/mypy .
	$(VENV)/python manage.py makemigrations --check --dry-run
	@$(PRODUCTION) $(VENV)/python manage.py check --deploy --fail-level WARNING

docs: ## the documents as a site with search, in build/site
	@$(INSTALL) docs
	NO_MKDOCS_2_WARNING=1 $(VENV)/python -m mkdocs build --strict --quiet

bench: ## throughput and latency on real servers (PEERS=1 compares with other tools)
	@$(INSTALL) test --try postgres mysql cassandra
	@$(VENV)/python -m tests.bench $(ARGS)

scale: ## the same work by 1, 2, 4 and 8 processes with a twentieth of a core each (ARGS="--database URL")
	@$(INSTALL) test --try postgres mysql cassandra
	@$(VENV)/python -m tests.bench --only scale $(ARGS)

crash: ## kill workers at the worst moments and count what is missing
	@$(INSTALL) test --try postgres mysql cassandra
	@$(VENV)/python -m tests.crash $(ARGS)

proof: ## take out each guard, kill and freeze workers in every state (FULL=1: each state three times)
	@$(INSTALL) test --try postgres mysql cassandra
	@$(VENV)/python -m tests.proof guards
	@$(VENV)/python -m tests.proof kill $(if $(FULL),--times 3,--most 24)
	@$(VENV)/python -m tests.proof freeze relay flush $(if $(FULL),--times 3,--most 24)

drill: ## stage a failure until its alert fires, follow the runbook until it ends; without NAME= the list (ARGS="--quick 10")
	@$(INSTALL) test --try postgres mysql cassandra
	@$(VENV)/python -m tests.drills $(if $(NAME),--name $(NAME),--list) $(ARGS)

screenshots: ## take the pictures of the documents again; needs Chromium (ARGS="--all FOLDER" takes every page)
	@$(INSTALL) test
	@$(VENV)/python -m tests.screenshots $(ARGS)

release: ## wheels and sdists in build/release, built from the last commit, checked and tried; uploads nothing
	@$(INSTALL) release
	@$(VENV)/python -m tests.release

requirements: ## compile requirements/*.txt again from pyproject.toml
	@$(VENV)/python -m requirements.compile

clean: ## remove .venv, caches, demo data, and the servers with their data
	@$(SERVICES) down --wipe
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage build staticfiles var
	rm -rf *.egg-info spillway.sqlite3 spillway.sqlite3-*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
