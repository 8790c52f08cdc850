# p2pfs: build, test, measure. Every target sets up what it needs; on a machine
# that has everything, nothing is fetched.
SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.DEFAULT_GOAL := build
MAKEFLAGS   += --no-print-directory
export PATH := $(PATH):/usr/local/go/bin
export PYTHONDONTWRITEBYTECODE := 1

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
PYTHON      := build/venv/bin/python

# What tests in a virtual machine with RDMA devices need: its kernel is built once,
# which takes two processors five minutes.
define READY
@tools/setup.sh test
@tools/setup.sh test-rdma
@tools/guest --prepare
endef

.PHONY: build test test-long test-rdma test-rdma-long oracle race lint bench bench-meta bench-rdma sim demo generate clean help

build: ## bin/p2pfs, with RDMA where libibverbs-dev and librdmacm-dev are installed
	@tools/setup.sh build
	go build -tags "$$(tools/tags.sh)" -o bin/p2pfs ./cmd/p2pfs

test: ## unit tests with the race detector, real processes on real FUSE, then on real verbs; half an hour
	$(READY)
	tools/test.sh

test-long: ## what make test leaves out: kill storms, outages at full length, big trees; an hour and a half
	$(READY)
	tools/test.sh long

test-rdma: ## that part of make test: RDMA on real verbs, in a virtual machine with soft-RoCE devices (tools/guest)
	$(READY)
	tools/test.sh rdma

test-rdma-long: ## that part of make test-long: nodes are killed in the middle of READs 200 times
	$(READY)
	tools/test.sh rdma-long

oracle: ## random steps on four nodes against the model: STEPS=5000 SEED=7 STORE=etcd|etcd3|redis|sentinel|cluster, or REPLAY=FILE
	@tools/setup.sh test
	P2PFS_ORACLE_STEPS='$(STEPS)' P2PFS_ORACLE_SEED='$(or $(SEED),$(shell date +%s))' P2PFS_ORACLE_REPLAY='$(abspath $(REPLAY))' P2PFS_ORACLE_WITHOUT='$(WITHOUT)' P2PFS_ORACLE_STORE='$(STORE)' tools/test.sh oracle

race: ## integration tests with daemons built with the race detector
	@tools/setup.sh test
	tools/test.sh race

lint: ## gofmt, go vet, staticcheck, shellcheck
	@tools/setup.sh lint
	tools/lint.sh $(STATICCHECK)

bench: build ## a table of figures, and build/bench.json
	@tools/setup.sh bench
	go build -o build/probe ./bench/probe
	$(PYTHON) bench/bench.py --json build/bench.json

bench-meta: ## the metadata stores beside bare commands, and build/bench-meta.json; FULL=1: 1,000,000 names
	@tools/setup.sh test
	mkdir -p build
	go test -tags bench -count=1 -timeout 3h -v -run TestMeta ./meta/metabench -args -names $(if $(FULL),1000000,100000) -json $(CURDIR)/build/bench-meta.json

bench-rdma: ## RDMA in a virtual machine beside ib_read_bw: the transport, node to node, through the mount
	$(READY)
	tools/bench-rdma.sh

sim: ## the simulator held against real nodes, then 1 to 10,000 simulated ones; RECEIVERS, SIZE, SEED, REAL=0
	@[ '$(REAL)' = 0 ] || tools/setup.sh test
	go build -o bin/p2pfs ./cmd/p2pfs
	RECEIVERS='$(RECEIVERS)' SIZE='$(SIZE)' SEED='$(SEED)' REAL='$(REAL)' tools/sim.sh

demo: ## three nodes, one real checkpoint, under two minutes
	@tools/setup.sh demo
	go build -o bin/p2pfs ./cmd/p2pfs
	demo/demo.sh

generate: ## Go code of the .proto files
	tools/generate.sh

clean: ## all that was built here
	rm -rf bin build

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile
