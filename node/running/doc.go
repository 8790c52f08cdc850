// Package running is how commands find the node they talk to.
//
// A daemon publishes one small JSON file in the runtime directory of its user
// (see Dir), its control socket beside it, and a link to the file in each of
// its cache directories ("control.json"). A command finds its node from a path
// under the mount, else from what it was told, else because only one runs.
//
// Finding never asks the mount itself for anything: a mount whose daemon hangs
// or is gone must not hang or fail the command that is to end it.
package running
