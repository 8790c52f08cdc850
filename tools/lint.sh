#!/bin/bash
# gofmt, go vet, staticcheck and shellcheck over the whole tree.
#   tools/lint.sh STATICCHECK-MODULE@VERSION
set -euo pipefail
cd "$(dirname "$0")/.."
rc=0
unformatted=$(git ls-files -co --exclude-standard '*.go' | xargs -r gofmt -l)
if [ -n "$unformatted" ]; then
	printf 'not gofmt-ed:\n%s\n' "$unformatted"
	rc=1
fi
go vet -tags long ./... || rc=1
go run "$1" -tags long ./... || rc=1
git ls-files -co --exclude-standard '*.sh' .ci/run tools/guest tools/guest.d | sort -u | xargs -r shellcheck -x || rc=1
exit $rc
