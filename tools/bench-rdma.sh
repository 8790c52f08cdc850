#!/bin/bash
# Measures RDMA in a guest (tools/guest): perftest's READ, the transport beside
# it, and the whole way from node to node; medians of five rounds in turn.
set -euo pipefail
cd "$(dirname "$0")/.."
export P2PFS_BIN=$PWD/build/p2pfs-test P2PFS_BENCH_DIR=$PWD/build
siw=''
! tools/guest --siw -- true 2>/dev/null || siw=--siw # user-mode Linux has it
mkdir -p build
go build -tags rdma -o "$P2PFS_BIN" ./cmd/p2pfs
go test -c -tags rdma -o build/verbs.test ./rdma/verbs
go test -c -tags rdma -o build/ib.test ./rdma/verbs/ib
python3 tools/gotest.py --each -exec "$PWD/tools/guest --mem 3072 --timeout 3400 $siw --" \
	-tags rdma,bench -count=1 -timeout 55m -run '^TestBenchRDMA$' ./integration
