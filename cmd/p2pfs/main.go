// Command p2pfs shows the files that the machines of a cluster have registered
// under one directory, and brings what is read from the machines that hold it.
//
// One file a subcommand: flags, wiring, signals and what is printed. What a
// node does is in package node; commands ask a running one over its control
// socket.
package main

import (
	"context"
	"os"
)

func main() {
	a := &app{
		args:   os.Args[1:],
		out:    os.Stdout,
		err:    os.Stderr,
		lookup: os.LookupEnv,
		start:  startNode,
	}
	os.Exit(a.run(context.Background()))
}
