package oracle

import (
	"encoding/json"
	"fmt"
)

// Node is a node's place in the cluster, from 0 to Size-1.
type Node int

// Size is how many nodes the cluster has.
const Size = 4

// Nodes is a set of nodes.
type Nodes uint8

// All is every node.
const All Nodes = 1<<Size - 1

func (s Nodes) Has(n Node) bool             { return s&(1<<n) != 0 }
func (s Nodes) With(n Node) Nodes           { return s | 1<<n }
func (s Nodes) Without(n Node) Nodes        { return s &^ (1 << n) }
func (n Node) String() string               { return string(rune('a' + n)) }
func (n Node) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

func (n *Node) UnmarshalText(b []byte) error {
	if len(b) != 1 || b[0] < 'a' || b[0] >= 'a'+Size {
		return fmt.Errorf("no such node: %q", b)
	}
	*n = Node(b[0] - 'a')
	return nil
}

func (s Nodes) String() string {
	var out []byte
	for n := range Node(Size) {
		if s.Has(n) {
			out = append(out, n.String()...)
		}
	}
	return string(out)
}

// Kind is what a step does.
type Kind string

// The steps. Node does them; for faults it is the one that suffers.
const (
	Register   Kind = "register"   // Path becomes a registered file of Size bytes
	Join       Kind = "join"       // Register of equal bytes under a name that has them
	Replace    Kind = "replace"    // Register --replace
	Unregister Kind = "unregister" // Path
	Drop       Kind = "drop"       // Path
	Publish    Kind = "publish"    // a new file, O_EXCL
	Overwrite  Kind = "overwrite"  // all of a file, O_CREAT|O_TRUNC
	Append     Kind = "append"     // Size bytes
	Patch      Kind = "patch"      // Size bytes at Off
	Truncate   Kind = "truncate"   // to Size
	Save       Kind = "save"       // a temporary file of a private name, renamed to Path
	Race       Kind = "race"       // Node and Other overwrite Path at the same time
	Torn       Kind = "torn"       // an overwrite whose daemon is killed after Delay
	Mkdir      Kind = "mkdir"
	Rmdir      Kind = "rmdir"
	Unlink     Kind = "unlink"
	Rename     Kind = "rename"  // Path to To
	Symlink    Kind = "symlink" // Path with the target To
	Chmod      Kind = "chmod"
	Utimens    Kind = "utimens"
	Recover    Kind = "recover" // what Node has left unpublished is published (Mode 1) or discarded
	Collect    Kind = "gc"

	Kill         Kind = "kill"
	Restart      Kind = "restart"       // with what it had
	RestartEmpty Kind = "restart-empty" // without its cache directory
	CutStore     Kind = "cut-store"     // the node's network to the store
	CutPeers     Kind = "cut-peers"     // and to the other nodes
	Heal         Kind = "heal"          // both
	StoreStop    Kind = "store-stop"
	StoreStart   Kind = "store-start"
	StoreRestart Kind = "store-restart"
	StoreWipe    Kind = "store-wipe"

	Check Kind = "check" // all nodes are compared with the model; Mode 1: all bytes are read, what has no name is removed; 2: all holders are asked for
)

// Step is one step, complete: what it does depends on nothing else.
type Step struct {
	Do    Kind   `json:"do"`
	Node  Node   `json:"node"`
	Other Node   `json:"other,omitempty"`
	Path  string `json:"path,omitempty"`
	To    string `json:"to,omitempty"`
	Size  int64  `json:"size,omitempty"`
	Off   int64  `json:"off,omitempty"`
	Seed  uint64 `json:"seed,omitempty"` // of the bytes
	Mode  uint32 `json:"mode,omitempty"`
	Mtime int64  `json:"mtime,omitempty"` // nanoseconds
	Delay int64  `json:"delay,omitempty"` // microseconds
	Force bool   `json:"force,omitempty"`
}

func (s Step) String() string {
	b, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Bytes are the bytes that a step writes; Race's second writer has those of
// the next seed.
func (s Step) Bytes() []byte { return Bytes(s.Seed, s.Size) }

// Result is how a step ended: Done, the name of an errno, Refused for a
// command that said no, Broken or Nothing.
type Result string

const (
	Done    Result = ""
	Refused Result = "refused"
	Broken  Result = "broken"  // the daemon died under it
	Nothing Result = "nothing" // there was nothing to recover
	EIO     Result = "EIO"

	// AtClose is added to an errno that close gave.
	AtClose Result = " at close"
)

// ParseStep reads what String wrote.
func ParseStep(line string) (s Step, err error) {
	if err := json.Unmarshal([]byte(line), &s); err != nil {
		return s, fmt.Errorf("read step %q: %w", line, err)
	}
	return s, nil
}
