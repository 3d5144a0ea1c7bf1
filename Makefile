# SPDX-License-Identifier: GPL-2.0-or-later
# The front door: every task of the project by one name. Kernel images, tools and packages are kept
# in a cache outside the checkout (RAMSLICE_CACHE, default ~/.cache/ramslice); reports go to out/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
CACHE := $(or $(RAMSLICE_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/ramslice)
TESTS ?=
TEST_OPTIONS ?=
KERNEL ?= plain
CASE ?= compile

.PHONY: help
help: ## Shows this list
	@echo "ramslice: packs used memory into few DRAM slices, so that empty ones can be powered off."
	@echo
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo demo-stock demo-giveback test test-long test-arm64 check fuzz soak case shell series
.PHONY: bench bench-check bench-energy bench-governor bench-placement bench-giveback bench-cold
.PHONY: bench-size bench-huge bench-all
demo: setup ## Shows slices powered off, in a virtual machine: make demo [KERNEL=7.3]
	@lab/bin/ramlab demo --kernel $(KERNEL)

demo-stock: setup ## Shows the same by memory hotplug on Debian's own, unpatched kernel
	@lab/bin/ramlab demo-stock

demo-giveback: setup ## Shows memory that goes back to the host: make demo-giveback [HUGE=1]
	@lab/bin/ramlab demo-giveback $(if $(HUGE),--huge)

test: setup ## Runs all tests, or some by pytest's options: make test TESTS="-k power"
	@$(if $(TESTS),lab/bin/ramlab test $(TESTS),lab/bin/ramlab test-all $(TEST_OPTIONS))

test-long: setup ## Runs the long campaigns, or some: make test-long TESTS="-k package"
	@lab/bin/ramlab test -m slow $(TESTS)

test-arm64: setup ## Runs the crates' tests as programs for aarch64, by QEMU's user mode
	@lab/bin/ramlab test -m slow -rs tests/host/test_crates_arm64.py

check: setup ## Checks style and spelling: Rust, kernel, shell, Python, English
	@lab/bin/ramlab check

fuzz: setup ## Feeds generated inputs to the kernel, guided by what they reach
	@lab/bin/ramlab fuzz --kernel coverage

soak: setup ## Stresses the debug kernel for half an hour and keeps a summary
	@lab/bin/ramlab soak

bench: setup ## Measures what slices cost, against the unpatched kernel
	@lab/bin/ramlab bench slices

bench-check: setup ## Prints every kept figure that misses its target or is stale
	@lab/bin/ramlab bench --check

bench-energy: setup ## Measures how true prices are, and reads the kept case studies
	@lab/bin/ramlab bench energy

bench-placement: setup ## Measures what each placement policy leaves to be switched off
	@lab/bin/ramlab bench placement

bench-governor: setup ## Plays policies against the clairvoyant in the simulator
	@lab/bin/ramlab bench governor

bench-giveback: setup ## Measures what the host holds of guests, by each way of giving back
	@lab/bin/ramlab bench giveback

bench-cold: setup ## Measures where accesses to DRAM go, with cold memory and without
	@lab/bin/ramlab bench cold

bench-size: setup ## Measures how programs fare with less and less memory
	@lab/bin/ramlab bench size --resume

bench-huge: setup ## Measures pages of 1 GiB after hours of use, by each way
	@lab/bin/ramlab bench huge

bench-all: setup ## Runs every benchmark suite
	@lab/bin/ramlab bench --resume

case: tools kernel ## Runs a case study: make case CASE=compile, tpch or import
	@lab/bin/ramlab case $(CASE) --resume

shell: setup ## Opens a shell in a virtual machine: make shell KERNEL=debug
	@lab/bin/ramlab vm --kernel $(KERNEL) --interactive

series: setup ## Writes the kernel changes as a git-am series: make series [KERNEL=7.3]
	@lab/bin/ramlab series $(if $(filter-out plain,$(KERNEL)),--base $(KERNEL))

.PHONY: static deb kernel-deb rebase release
FLAVOUR ?= lean
ARCH := amd64
static: setup ## Builds self-contained programs for x86_64 and aarch64 into out/static
	@packaging/static/build

deb: setup ## Builds the Debian packages of the tools into out/deb: ARCH=amd64 or arm64
	@packaging/deb/build --arch $(ARCH)

kernel-deb: setup ## Builds kernel packages: FLAVOUR=lean or debian [MODULES=..] [KEY=.. CERT=..]
	@lab/bin/ramlab kernel-deb $(if $(KEY),--key $(KEY)) $(if $(CERT),--cert $(CERT)) \
		$(if $(MODULES),--modules $(MODULES)) $(FLAVOUR)

release: setup ## Prepares a version; once tagged, builds its packages: make release VERSION=1.2.3
	@lab/bin/ramlab release $(VERSION)

rebase: ## Moves the series to Debian's newest kernel source, or names the conflicts
	@lab/bin/ramlab rebase

.PHONY: setup kernel kernel-debug kernel-stock kernel-arm64 tools
setup: ## Installs what this machine lacks
	@lab/setup

kernel: setup ## Builds the patched kernel
	@lab/bin/ramlab kernel plain

kernel-debug: setup ## Builds the patched kernel with KASAN, lockdep and VM checks
	@lab/bin/ramlab kernel debug

kernel-stock: setup ## Builds the same kernel without our changes
	@lab/bin/ramlab kernel stock

kernel-arm64: setup ## Builds the patched kernel for arm64, with a cross compiler
	@lab/bin/ramlab kernel --arch arm64 plain

tools: setup ## Builds the user-space tools
	@source lab/env && cargo build --release --locked

.PHONY: clean distclean
clean: ## Removes out/
	rm -rf out

distclean: clean ## Removes out/ and the cache
	rm -rf "$(CACHE)"
