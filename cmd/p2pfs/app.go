package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/p2pfs/p2pfs/node"
	"github.com/p2pfs/p2pfs/node/doctor"
)

// app is one run of the program: what it was given and where it prints.
type app struct {
	args     []string
	out, err io.Writer
	lookup   func(string) (string, bool) // environment
	start    func(context.Context, node.Config) (daemon, error)
	machine  *doctor.Machine // that doctor looks at; nil: this one

	json     bool   // --json
	node     string // --node
	terminal bool   // out is one
}

// daemon is a running node as mount needs it; *node.Node is one.
type daemon interface {
	Info() node.Info
	Wait() error
	Close(context.Context) error
}

// startNode starts a real node.
func startNode(ctx context.Context, cfg node.Config) (daemon, error) {
	roomToWait()
	n, err := node.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return n, nil
}

// run executes the command line and returns the exit code.
func (a *app) run(ctx context.Context) int {
	a.terminal = isTerminal(a.out)
	root := a.rootCommand()
	root.SetArgs(a.args)
	root.SetOut(a.out)
	root.SetErr(a.err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	code := exitCode(err)
	fmt.Fprintf(a.err, "p2pfs: %v\n", err)
	if code == exitUsage {
		fmt.Fprintf(a.err, "try '%s --help'\n", cmd.CommandPath())
	}
	return code
}

// env returns a variable of the environment, "" if it is not set.
func (a *app) env(name string) string {
	v, _ := a.lookup(name)
	return v
}

// isTerminal reports whether w is a terminal that a person looks at.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
