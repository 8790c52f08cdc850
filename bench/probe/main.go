// Probe holds the plain programs that the benchmark measures p2pfs against:
// a sendfile server and a receiver that splices to a file, range requests, a
// checksum, a walk over a mapping and a bare read of the store.
//
//	probe serve ADDR FILE            raw copies on ADDR, range requests on the next port
//	probe copy ADDR OUT              receives the file
//	probe ranges ADDR SIZE LEN N     N range requests at random offsets: seconds each
//	probe firsts FILE LEN N SEED     N reads of a file at random offsets: seconds each
//	probe stats DIR N SEED           N stats of random names of DIR (from standard input): seconds each
//	probe crc GIB                    CRC-32C over memory
//	probe walk FILE [random]         touches every page of a shared mapping
//	probe keys ENDPOINT PREFIX N     N reads of one key of etcd: seconds each
//	probe small DIR WHO N SIZE [sync]  writes N files: seconds each
//	probe big FILE SIZE [sync]       writes one file: seconds
//	probe count ENDPOINT PREFIX      keys below each first letter of PREFIX
package main

import (
	"fmt"
	"os"
)

func main() {
	commands := map[string]func(args []string) error{
		"serve": serve, "copy": receive, "ranges": ranges, "firsts": firsts, "stats": stats,
		"crc": checksum, "walk": walk, "keys": keys, "count": count, "small": small, "big": big,
	}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: probe COMMAND ARGUMENTS; see the package comment")
		os.Exit(2)
	}
	if err := commands[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "probe %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}
