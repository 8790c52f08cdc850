package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

const rootHelp = `p2pfs shows the files that the machines of a cluster have registered under one
directory, and brings what is read from the machines that hold it. What one
machine has read, it keeps for a while and gives to others.

One daemon a machine, started by 'p2pfs mount', is a node. The other commands
ask the node on this machine. They find it from a path under its mount, else
from --node, else from the variable P2PFS_NODE, else because it is the only one
that runs here.

` + exitCodesHelp

const rootExample = `  # one machine: the first node, with the metadata store inside
  p2pfs mount /mnt/models
  # another machine or another mountpoint, with the URL the first one printed
  p2pfs mount etcd://127.0.0.1:2379 /mnt/models2

  p2pfs register /data/llama /mnt/models/llama
  ls -l /mnt/models2/llama
  p2pfs stat /mnt/models2/llama/config.json`

func (a *app) rootCommand() *cobra.Command {
	var showVersion bool
	root := &cobra.Command{
		Use:     "p2pfs",
		Short:   "Files of many machines under one directory",
		Long:    rootHelp,
		Example: rootExample,
		Args:    unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if showVersion {
				return a.printVersion()
			}
			return cmd.Help()
		},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.Flags().BoolVar(&showVersion, "version", false, "as the command version")
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON, for programs")
	root.PersistentFlags().StringVar(&a.node, "node", "", "the node to ask: its cache `DIR` or control socket")
	root.AddCommand(
		a.mountCommand(), a.umountCommand(),
		a.registerCommand(), a.unregisterCommand(),
		a.lsCommand(), a.statCommand(), a.getCommand(), a.warmCommand(), a.pinCommand(), a.unpinCommand(), a.dropCommand(), a.eventsCommand(), a.gcCommand(),
		a.statusCommand(), a.recoverCommand(), a.peersCommand(), a.traceCommand(), a.benchCommand(), a.doctorCommand(), a.versionCommand(),
	)
	return root
}

// unknownCommand is told of words that name no subcommand.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	near := cmd.SuggestionsFor(args[0])
	if len(near) == 0 {
		return usagef("unknown command %q", args[0])
	}
	return usagef("unknown command %q; did you mean %s?", args[0], strings.Join(near, " or "))
}

// argCount makes a wrong number of arguments a usage error that says what is
// wanted. most below 0 means any number.
func argCount(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usagef("%s: too few arguments; usage: p2pfs %s", cmd.Name(), cmd.Use)
		case most >= 0 && len(args) > most:
			return usagef("%s: too many arguments (%q); usage: p2pfs %s", cmd.Name(), args[most], cmd.Use)
		}
		for _, arg := range args {
			if arg == "" {
				return usagef("%s: empty argument", cmd.Name())
			}
		}
		return nil
	}
}

// plural returns "1 file", "2 files".
func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
