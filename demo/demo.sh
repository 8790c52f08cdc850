#!/bin/bash
# Checkpoints on three nodes. One is registered on B, loaded on C, and, once B
# has been killed, loaded on A from C alone. Another is written on C through the
# mount by the safetensors library, loaded on A, saved again, renamed and
# removed. Each command is printed as it is run, so that it can be repeated by
# hand (DEMO_KEEP=1 leaves everything running).
set -euo pipefail
cd "$(dirname "$0")/.."

P2PFS=$PWD/bin/p2pfs
PYTHON=$PWD/build/venv/bin/python
CHECKPOINT=$PWD/demo/checkpoint.py
# A tmpfs would hold the checkpoint, three caches and the page cache in memory.
WORK=$(mktemp -d "${DEMO_DIR:-/var/tmp}/p2pfs-demo.XXXXXX")
export P2PFS_RUNTIME_DIR=$WORK/run
A=$WORK/a B=$WORK/b C=$WORK/c
declare -A pid=()

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
fail() {
	printf '\np2pfs demo: FAILED: %s\n' "$*" >&2
	for log in "$WORK"/*.log; do
		[ -s "$log" ] && { printf '%s\n' "--- $log" && tail -n 15 "$log"; } >&2
	done
	exit 1
}
show() { # prints a command, with the long paths as variables
	local shown="$*"
	shown=${shown//$P2PFS/p2pfs}
	shown=${shown//$PYTHON/python}
	shown=${shown//$CHECKPOINT/demo\/checkpoint.py}
	printf '\033[36m$ %s\033[0m\n' "${shown//$WORK/\$W}" >&2
}
run() {
	show "$@"
	"$@"
}
mounted() { awk -v m="$1" '$2 == m && $3 == "fuse.p2pfs" { found = 1 } END { exit !found }' /proc/mounts; }

node() { # node NAME MOUNT-ARGUMENTS...: one daemon of its own, ready on return
	local name=$1 dir=$WORK/$1
	shift
	mkdir -p "$dir/mnt"
	set -- "$P2PFS" mount "${@}" "$dir/mnt" --cache-dir "$dir/cache" --name "$name" --listen 127.0.0.1:0 --http 127.0.0.1:0
	show "$@" '&'
	"$@" >"$WORK/$name.log" 2>&1 </dev/null &
	pid[$name]=$!
	local i
	for i in $(seq 150); do
		mounted "$dir/mnt" && "$P2PFS" status --node "$dir/cache" >/dev/null 2>&1 && return 0
		kill -0 "${pid[$name]}" 2>/dev/null || fail "node $name ended as it started"
		sleep 0.2
	done
	fail "node $name was not ready within 30 s (try $i)"
}
field() { # field NODE-DIR DOTTED.NAME: one field of its status
	"$P2PFS" status --node "$1/cache" --json |
		"$PYTHON" -c 'import functools, json, sys; print(functools.reduce(lambda d, k: d[k], sys.argv[1].split("."), json.load(sys.stdin)))' "$2"
}
load() { # load DIR: the digest, with what the loader said on the terminal
	local out
	out=$(run "$PYTHON" "$CHECKPOINT" load "$1") || fail "loading $1"
	printf '%s\n' "$out" >&2
	cut -d ' ' -f 1 <<<"$out"
}
same() { [ "$1" = "$2" ] || fail "$3: digest $2, wanted $1"; printf 'digests are equal: %.16s…\n' "$2"; }

# shellcheck disable=SC2317 # called by trap
cleanup() {
	local rc=$? name
	trap - EXIT INT TERM
	if [ -n "${DEMO_KEEP:-}" ]; then
		printf '\nleft running in %s\n' "$WORK"
		exit $rc
	fi
	for name in "${!pid[@]}"; do kill "${pid[$name]}" 2>/dev/null || true; done
	for name in "${!pid[@]}"; do
		timeout 20 tail --pid="${pid[$name]}" -f /dev/null || kill -9 "${pid[$name]}" 2>/dev/null || true
	done
	for name in a b c; do
		! mounted "$WORK/$name/mnt" || umount -l "$WORK/$name/mnt" || true
	done
	rm -rf --one-file-system "$WORK"
	exit $rc
}
trap cleanup EXIT
trap 'exit 130' INT TERM
began=$SECONDS

say "W=$WORK: a checkpoint as model hubs lay them out, made with the safetensors library"
run "$PYTHON" "$CHECKPOINT" make "$WORK/llama"
ls -l "$WORK/llama"
want=$(load "$WORK/llama")

say "node A, with the metadata store in its own process; B and C join by its URL"
port=$("$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
node a --meta-listen "127.0.0.1:$port"
META=$(field "$A" meta.url)
printf 'metadata: %s\n' "$META"
node b "$META"
node c "$META"

say "registered on B: at once, no byte copied"
run "$P2PFS" register "$WORK/llama" "$B/mnt/llama"
run "$P2PFS" ls -l "$C/mnt/llama"

say "loaded on C by plain path: the bytes come from B"
same "$want" "$(load "$C/mnt/llama")" "loaded on C"
printf 'C received %s bytes, B sent %s\n' "$(field "$C" counters.received_bytes)" "$(field "$B" counters.sent_bytes)"

say "who holds what"
shard=model-00001-of-00004.safetensors
for file in "$C"/mnt/llama/*.safetensors; do # all of it is here, before B goes
	run "$P2PFS" get "$file"
done
run "$P2PFS" stat "$C/mnt/llama/$shard"

say "B is killed; A has none of it yet and loads from C alone"
[ "$(field "$A" counters.received_bytes)" = 0 ] || fail "A has received bytes before it read any"
run kill -KILL "${pid[b]}"
wait "${pid[b]}" 2>/dev/null || true
unset 'pid[b]'
same "$want" "$(load "$A/mnt/llama")" "loaded on A"
printf 'A received %s bytes, C sent %s\n' "$(field "$A" counters.received_bytes)" "$(field "$C" counters.sent_bytes)"
run "$P2PFS" stat "$A/mnt/llama/$shard"

say "and every file, byte for byte"
run diff -r "$WORK/llama" "$A/mnt/llama" || fail "A's files differ"
echo "no difference"

say "and back: C writes the checkpoint of a training run through its mount"
run "$PYTHON" "$CHECKPOINT" make "$C/mnt/run/step-100" --mib 256 --shards 2 --seed 100
saved=$(load "$C/mnt/run/step-100")

say "loaded on A by plain path: each file was there when its close returned on C"
before=$(field "$A" counters.received_bytes)
same "$saved" "$(load "$A/mnt/run/step-100")" "loaded on A"
printf 'A received %s bytes\n' $(($(field "$A" counters.received_bytes) - before))
run "$P2PFS" stat "$A/mnt/run/step-100/model-00001-of-00002.safetensors"

say "C saves the next step under the same names, by renaming over them; A loads it"
run "$PYTHON" "$CHECKPOINT" make "$C/mnt/run/next" --mib 256 --shards 2 --seed 200
for file in "$C"/mnt/run/next/*; do
	mv "$file" "$C/mnt/run/step-100/"
done
run rmdir "$C/mnt/run/next"
run mv "$C/mnt/run/step-100" "$C/mnt/run/latest"
run ls -l "$A/mnt/run"
next=$(load "$C/mnt/run/latest")
[ "$next" != "$saved" ] || fail "the next step is the one before"
same "$next" "$(load "$A/mnt/run/latest")" "the next step, loaded on A"
run cp -a "$C/mnt/run/latest" "$WORK/copy"
run rm -r "$A/mnt/run"
for _ in $(seq 20); do # word of it takes some milliseconds
	[ -e "$C/mnt/run" ] || break
	sleep 0.1
done
[ ! -e "$C/mnt/run" ] || fail "removed on A, but not on C"
same "$next" "$(load "$WORK/copy")" "the copy"

say "unmounted: nothing is left"
for name in c a; do
	run "$P2PFS" umount "$WORK/$name/mnt" || fail "umount on $name"
	wait "${pid[$name]}" || fail "node $name ended with $?"
	unset "pid[$name]"
done
run umount -l "$B/mnt"
! grep -q "$WORK" /proc/mounts || fail "still mounted: $(grep "$WORK" /proc/mounts)"
printf '\np2pfs demo: all well, in %d s\n' $((SECONDS - began))
