package cache

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/p2pfs/p2pfs/chunk"
)

// Pin says that what is here of an object is not evicted. Unlike a kept object,
// others do not rely on it: it can be pinned before anything of it is here, and
// may be given up.
type Pin struct {
	Object chunk.ObjectID
	Note   []byte // the caller's
}

const (
	pinsName    = "pins"
	pinsVersion = 1
)

// pins are the pinned objects. They are written to every root.
type pins struct {
	change sync.Mutex // one change at a time; held while it is written
	// byID is guarded by Cache.mu, and changed by whoever holds change.
	byID map[chunk.ObjectID]Pin
}

// Pin pins objects, durably.
func (c *Cache) Pin(_ context.Context, objects []Pin) error {
	return c.changePins(func(m map[chunk.ObjectID]Pin) {
		for _, p := range objects {
			m[p.Object] = p
		}
	})
}

// Unpin lets objects be evicted again. Those that are not pinned are no error.
func (c *Cache) Unpin(_ context.Context, objects []chunk.ObjectID) error {
	return c.changePins(func(m map[chunk.ObjectID]Pin) {
		for _, id := range objects {
			delete(m, id)
		}
	})
}

// Pinned reports whether an object is pinned.
func (c *Cache) Pinned(id chunk.ObjectID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isPinned(id)
}

// Pins returns what is pinned, in no order.
func (c *Cache) Pins() []Pin {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]Pin, 0, len(c.pins.byID))
	for _, p := range c.pins.byID {
		all = append(all, p)
	}
	return all
}

// isPinned is Pinned with Cache.mu held.
func (c *Cache) isPinned(id chunk.ObjectID) bool {
	_, ok := c.pins.byID[id]
	return ok
}

func (c *Cache) changePins(change func(map[chunk.ObjectID]Pin)) error {
	c.pins.change.Lock()
	defer c.pins.change.Unlock()
	was := c.pins.byID // changed by nobody else
	now := make(map[chunk.ObjectID]Pin, len(was)+1)
	for id, p := range was {
		now[id] = p
	}
	change(now)
	for _, r := range c.roots {
		if err := writePins(r.dir, now); err != nil {
			return fmt.Errorf("write what is pinned: %w", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pins.byID = now
	for _, m := range []map[chunk.ObjectID]Pin{was, now} {
		for id := range m {
			_, before := was[id]
			if _, after := now[id]; before == after {
				continue
			}
			if e := c.entries[id]; e != nil && e.busy == nil {
				c.unlist(e)
				c.relist(e)
			}
		}
	}
	return nil
}

// readPins reads what is pinned on any root. What cannot be read pins nothing:
// the bytes can be fetched again.
func (c *Cache) readPins() {
	c.pins.byID = map[chunk.ObjectID]Pin{}
	for _, r := range c.roots {
		b, err := os.ReadFile(filepath.Join(r.dir, pinsName))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var some []Pin
		if err == nil {
			some, err = decodePins(b)
		}
		if err != nil {
			c.log.Error("what is pinned cannot be read; pin it again", "root", r.dir, "err", err)
		}
		for _, p := range some {
			c.pins.byID[p.Object] = p
		}
	}
}

type pinsJSON struct {
	Version int       `json:"version"`
	Pins    []pinJSON `json:"pins"`
}

type pinJSON struct {
	Object string `json:"object"`
	Note   []byte `json:"note,omitempty"`
}

func encodePins(m map[chunk.ObjectID]Pin) ([]byte, error) {
	j := pinsJSON{Version: pinsVersion, Pins: []pinJSON{}}
	for _, p := range m {
		j.Pins = append(j.Pins, pinJSON{p.Object.String(), p.Note})
	}
	return json.Marshal(j)
}

func decodePins(b []byte) ([]Pin, error) {
	var j pinsJSON
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&j); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	if j.Version != pinsVersion {
		return nil, fmt.Errorf("version %d, this program knows %d", j.Version, pinsVersion)
	}
	all := make([]Pin, 0, len(j.Pins))
	for _, p := range j.Pins {
		id, err := chunk.ParseObjectID(p.Object)
		if err != nil {
			return nil, fmt.Errorf("decode: %w", err)
		}
		all = append(all, Pin{id, p.Note})
	}
	return all, nil
}

// writePins replaces a root's file and returns when it would survive a power
// failure.
func writePins(dir string, m map[chunk.ObjectID]Pin) error {
	b, err := encodePins(m)
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, pinsName+".tmp")
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(tmp, filepath.Join(dir, pinsName))
	}
	if err != nil {
		return err
	}
	return syncDir(dir)
}
