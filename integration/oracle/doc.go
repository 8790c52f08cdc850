// Package oracle says what a cluster may show after any sequence of steps: a
// small model of SEMANTICS.md in plain Go, a generator of steps, and the
// comparison of what nodes show with what the model allows. It starts nothing
// and imports none of ours; package integration runs the steps on real nodes.
//
// Where the semantics leave an outcome open (a change that failed while the
// store was out of reach "has not happened or will be found to have
// happened"), the model goes on with every world that is allowed, and drops
// those that a later result or look at the nodes rules out. None left is a
// failure.
package oracle
