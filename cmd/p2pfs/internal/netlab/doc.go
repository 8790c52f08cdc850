// Package netlab makes a network of hosts on one machine: each host has a
// network and a mount namespace of its own, and one link of a given rate, in
// either direction, to one switch. There is no way out of that network.
//
// Namespaces live as long as the processes in them, and every process dies with
// the one that made the lab. So nothing of a lab stays whatever way it ends but
// files, and those a later lab removes.
package netlab
