package main

import "github.com/p2pfs/p2pfs/node"

// protocols are the versions of what this program speaks and writes.
func protocols() map[string]int {
	p := node.Protocols()
	p["control"] = 1
	return p
}
