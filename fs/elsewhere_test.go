package fs

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
)

// elsewhere is a file as other nodes see it.
type elsewhere struct {
	Exists bool
	Size   int64
	Sum    string
	Entry  meta.Entry
}

// seen reads what was published under a name.
func (d *fakeDaemon) seen(dir meta.InodeID, name string) (elsewhere, error) {
	e, ok := d.made.seen(meta.Place{Dir: dir, Name: name})
	if !ok {
		return elsewhere{}, nil
	}
	buf := make([]byte, e.Size)
	if e.Size > 0 {
		if _, err := d.bytes.get(e.Object.ID).local.ReadAt(buf, 0); err != nil {
			return elsewhere{}, err
		}
	}
	return elsewhere{Exists: true, Size: e.Size, Sum: sum(buf), Entry: e}, nil
}

// trouble makes writes or publishes fail or wait.
func (c *fakeChanges) trouble(what string, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch what {
	case "fullstage":
		c.full = on
	case "failpublish":
		if c.fail = nil; on {
			c.fail = fmt.Errorf("publish: %w", meta.ErrUnavailable)
		}
	case "gatepublish":
		setGate(&c.gate, on)
	case "gateopen":
		setGate(&c.opens, on)
	}
}

func setGate(gate *chan struct{}, on bool) {
	if on {
		*gate = make(chan struct{})
	} else if *gate != nil {
		close(*gate)
		*gate = nil
	}
}

// seen returns what other nodes see of a path.
func (d *daemon) seen(path string) elsewhere {
	d.t.Helper()
	var s elsewhere
	require.NoError(d.t, d.try(order{Op: "seen", Path: []byte(path)}, &s))
	return s
}
