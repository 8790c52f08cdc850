// Package integration runs p2pfs as a user does: real processes, real FUSE
// mounts, a real etcd. It builds the binary once, imports none of ours, and
// reads mounts from child processes only. Each test is named for what it
// shows; CASES.md says which failures from the field are tried where.
//
// It needs root, /dev/fuse and what tools/setup.sh installs. Whatever way the
// test binary ends, no process, mount or directory of it is left.
package integration
