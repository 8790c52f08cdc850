#!/bin/bash
# Prints the build tags for this machine: rdma, if there is a C compiler for Go
# and the headers of libibverbs and librdmacm; else nothing. Neither library is
# linked: they are loaded when they are there.
set -euo pipefail
compiler=$(go env CC)
if [ "$(go env CGO_ENABLED)" = 1 ] && printf '#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n' |
	${compiler:-cc} -E -x c - >/dev/null 2>&1; then
	echo rdma
fi
