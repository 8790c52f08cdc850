package main

import "github.com/spf13/cobra"

func (a *app) benchCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure how fast files reach many nodes",
		Long: `Measure how fast a new file reaches many nodes at once, on this machine alone and
without a node that runs already.

` + exitCodesHelp,
		Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.SuggestionsMinimumDistance = 2
	c.AddCommand(a.benchSwarmCommand(), a.newBenchSimCommand())
	return c
}
