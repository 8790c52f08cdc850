// Package doctor looks at a machine and says how well p2pfs will run on it:
// its RDMA devices and what would be chosen of them, FUSE, limits, and the
// disks of the cache. Every fault it finds comes with what to do about it.
//
// It asks no node and needs none. What it looks at is in Config, so that tests
// can give it another machine.
package doctor
