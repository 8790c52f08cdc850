#!/bin/bash
# Builds the file system test suites that come as Rust crates, into
# build/suites/bin. The crates bring the versions and checksums of all they
# need (--locked). What was built stays in the user's cache, as Go's does, so
# that the next clone on this machine builds nothing.
#   tools/suites.sh        build what is missing
#   tools/suites.sh needs  say which Debian packages would have to be there
set -euo pipefail
cd "$(dirname "$0")/.."

SUITES=(fsx@0.3.2 pjdfstest@0.2.2)
RUST=1.85 # what pjdfstest asks for
CACHE=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/p2pfs-suites
BIN=build/suites/bin

have() { [ -x "$BIN/${1%@*}" ] && [ "$(readlink "$BIN/${1%@*}")" = "$CACHE/$1/bin/${1%@*}" ]; }

missing() {
	local suite
	for suite in "${SUITES[@]}"; do
		have "$suite" || printf '%s\n' "$suite"
	done
}

new_enough() { # can the cargo of this machine build them?
	local version
	version=$(cargo --version 2>/dev/null | awk '{ print $2 }') || return 1
	[ -n "$version" ] && printf '%s\n' "$RUST" "$version" | sort -CV
}

link_cached() {
	local suite
	mkdir -p $BIN
	for suite in "${SUITES[@]}"; do
		[ ! -x "$CACHE/$suite/bin/${suite%@*}" ] || ln -sfn "$CACHE/$suite/bin/${suite%@*}" "$BIN/${suite%@*}"
	done
}

build() { # without optimization: they wait for the file system, not for themselves
	local suite target log
	target=$(mktemp -d)
	log=$target/log
	for suite in $(missing); do
		printf 'p2pfs: building %s\n' "$suite"
		CARGO_TARGET_DIR=$target CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 \
			cargo install --quiet --debug --locked --no-track --root "$CACHE/$suite.new" "$suite" >"$log" 2>&1 </dev/null ||
			{ tail -n 20 "$log" >&2; rm -rf "$target"; exit 1; }
		rm -rf "${CACHE:?}/$suite"
		mv "$CACHE/$suite.new" "$CACHE/$suite"
	done
	rm -rf "$target"
	link_cached
}

link_cached
[ -n "$(missing)" ] || exit 0
case ${1:-} in
needs) # Debian's own cargo is older; this one follows its browsers
	new_enough || printf 'cargo-web gcc\n'
	[ -e /etc/ssl/certs/ca-certificates.crt ] || printf 'ca-certificates\n'
	;;
'') build ;;
*)
	echo "usage: tools/suites.sh [needs]" >&2
	exit 2
	;;
esac
