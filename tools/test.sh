#!/bin/bash
# Runs the tests. Without an argument: all that a change must pass. "long":
# what takes longer. "rdma" and "rdma-long": of each, what needs RDMA devices, in
# a guest that has them.
# "oracle": random steps; P2PFS_ORACLE_* say which. "race":
# the integration tests against race-built daemons.
set -euo pipefail
cd "$(dirname "$0")/.."
gotest=(python3 tools/gotest.py)

units() { # every package but the integration tests
	local list
	list=$(go list ./... | grep -v '/integration$')
	# shellcheck disable=SC2086 # one package a word
	"${gotest[@]}" "$@" -race -timeout 20m $list
}

integration() { "${gotest[@]}" --each -count=1 -parallel 4 "$@" ./integration; }

say() { printf '== %s\n' "$*"; }

# A guest for each test of real processes: one for all of them came to its host's
# limit of mappings.
guest="$PWD/tools/guest --mem 3072 --timeout 2700 --"

rdma() { # ... || rc=$? ends nothing by itself in here: each step says so
	local rc=0 name names
	say 'a guest with RDMA devices'
	tools/guest -- ibv_devinfo -l || return
	say 'RDMA transport'
	"${gotest[@]}" --each "$@" -exec "$guest" -tags rdma -count=1 -timeout 40m ./rdma/verbs/... || rc=$?
	say 'real processes on real verbs'
	go build -tags rdma -o "$P2PFS_BIN" ./cmd/p2pfs || return
	names=$(go test -tags rdma -list '^TestRDMA' ./integration) || { printf '%s\n' "$names" && return 1; }
	names=$(grep '^Test' <<<"$names") || return
	for name in $names; do
		integration "$@" -exec "$guest" -tags rdma -timeout 40m -run "^$name\$" || rc=$?
	done
	return $rc
}

rdma_long() {
	say 'real processes on real verbs, killed'
	go build -tags rdma -o "$P2PFS_BIN" ./cmd/p2pfs || return
	integration -exec "${guest/2700/7200}" -tags rdma,long -timeout 125m -run '^TestRDMAKilled$'
}

export P2PFS_BIN=$PWD/build/p2pfs-test
case ${1:-} in
'')
	say 'build' # go test vets what it runs; all of go vet is in make lint
	go build -o "$P2PFS_BIN" ./cmd/p2pfs
	rc=0
	say 'unit tests, with the race detector'
	units --again 2 || rc=$?
	say 'real processes on real FUSE'
	integration --again 2 -timeout 30m || rc=$?
	rdma --again 2 || rc=$?
	exit $rc
	;;
long)
	go build -o "$P2PFS_BIN" ./cmd/p2pfs
	rc=0
	integration -tags long -timeout 90m || rc=$?
	rdma_long || rc=$?
	exit $rc
	;;
rdma) rdma ;;
rdma-long) rdma_long ;;
oracle)
	go build -o "$P2PFS_BIN" ./cmd/p2pfs
	go test -count=1 -timeout 24h -run '^TestOracle$' -v ./integration
	;;
race)
	go build -race -o "$P2PFS_BIN" ./cmd/p2pfs
	integration -timeout 40m
	;;
*)
	echo "usage: tools/test.sh [long|rdma|rdma-long|oracle|race]" >&2
	exit 2
	;;
esac
