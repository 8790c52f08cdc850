// Package devices knows the RDMA devices of a machine and chooses among them.
//
// It reads what the kernel shows under /sys/class/infiniband (System.Devices),
// and decides by pure functions which ports and GIDs are of use (Choose) and
// which pair of GIDs two nodes should talk over (Paths). It opens no device:
// package verbs does that, with what was chosen here.
//
// Every reason why RDMA cannot be had, or not as well as it could, is a
// Problem: what is wrong, and what to do about it.
package devices
