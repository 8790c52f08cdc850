#!/usr/bin/env bash
# Simulated nodes that fetch one file at once, after the simulator was held against
# real runs: make sim. RECEIVERS, SIZE and SEED may be given; REAL=0 leaves out the
# real runs, which need root and two minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=bin/p2pfs
runs=build/swarm-runs.json
mkdir -p build

# real appends one real run to the file. One that left too little of the processors
# idle measured this machine and not the nodes: it is made again.
real() {
	local one=build/swarm-run.json try
	for try in 1 2 3; do
		"$bin" bench swarm --receivers 7 --size 256MiB --rate 150mbit --json >"$one" && {
			cat "$one" >>"$runs"
			return
		}
		grep -q '"valid": false' "$one" || return 1
		echo "sim: real run invalid, the processors were busy with something else (try $try of 3)" >&2
	done
	echo "sim: no valid real run: the simulator was not held against real nodes; REAL=0 goes without" >&2
	return 1
}

if [ "${REAL:-1}" != 0 ]; then
	rm -f "$runs"
	for _ in 1 2 3; do real; done
	"$bin" bench sim --against "$runs" --seed "${SEED:-1}"
fi

one() { "$bin" bench sim --receivers "$1" --seed "${SEED:-1}" "${@:2}"; }

if [ -n "${RECEIVERS:-}" ]; then
	for r in $RECEIVERS; do one "$r" --size "${SIZE:-256MiB}"; done
	exit
fi
# The largest has 1,024 blocks and takes most of the time: it goes on beside the others.
GOGC=400 one 10000 --size 2GiB --block 2MiB >build/sim-10000.txt &
large=$!
trap 'kill "$large" 2>/dev/null || true' EXIT
for r in 1 3 7 15 31 100 1000; do one "$r" --size "${SIZE:-256MiB}"; done
wait "$large"
trap - EXIT
cat build/sim-10000.txt
