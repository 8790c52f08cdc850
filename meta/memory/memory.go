// Package memory is a metadata store in one process's memory, for tests and
// memory:// URLs. It owns the data and nothing else: no other process sees it,
// and it is gone with its last user.
package memory

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/p2pfs/p2pfs/meta"
)

// history is how many events of a slot a watch may be behind, at least.
const history = 4096

// Store is a metadata store in memory. Safe for concurrent use.
type Store struct {
	db   *db
	ctx  context.Context // ends with Close
	stop context.CancelFunc
}

var _ meta.Slots = (*Store)(nil)

// New returns an empty store.
func New() *Store {
	return newStore(&db{slots: make(map[meta.Slot]*slot), history: history})
}

func newStore(d *db) *Store {
	ctx, stop := context.WithCancel(context.Background())
	return &Store{db: d, ctx: ctx, stop: stop}
}

// Another returns a second client of the same data, with a Close of its own.
func (s *Store) Another() *Store { return newStore(s.db) }

// Close ends the watches of this client.
func (s *Store) Close() error {
	s.stop()
	return nil
}

// Compact forgets the events so far: a watch that is behind gets ErrGap.
func (s *Store) Compact(context.Context) error {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	for _, sl := range s.db.slots {
		sl.forget(len(sl.events))
	}
	return nil
}

// db is the data that clients share.
type db struct {
	history int

	mu       sync.Mutex
	revision uint64 // counts the changes of all slots, as etcd does
	slots    map[meta.Slot]*slot
}

// slot is one group of records.
type slot struct {
	version   uint64
	fields    map[string]field
	events    []meta.Event
	forgotten uint64        // events up to this slot version are gone
	changed   chan struct{} // closed and replaced at every change
}

type field struct {
	value   []byte
	version uint64
	lease   *lease // nil: permanent
}

// slot returns the slot, made if there is none. d.mu is held.
func (d *db) slot(name meta.Slot) *slot {
	s := d.slots[name]
	if s == nil {
		s = &slot{fields: make(map[string]field), changed: make(chan struct{})}
		d.slots[name] = s
	}
	return s
}

// Get implements meta.Slots.
func (s *Store) Get(ctx context.Context, keys ...meta.Key) ([]meta.Record, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	out := make([]meta.Record, len(keys))
	for i, k := range keys {
		out[i] = meta.Record{Slot: k.Slot, Field: k.Field}
		sl := s.db.slots[k.Slot]
		if sl == nil {
			continue
		}
		if k.Field == "" {
			out[i].Version = sl.version
		} else if f, ok := sl.fields[k.Field]; ok {
			out[i].Value, out[i].Version = bytes.Clone(f.value), f.version
		}
	}
	return out, nil
}

// ready reports why a call cannot be served.
func (s *Store) ready(ctx context.Context) error {
	if s.ctx.Err() != nil {
		return fmt.Errorf("%w: closed", meta.ErrUnavailable)
	}
	return ctx.Err()
}

// List implements meta.Slots. Pages are in the order of fields; a later page
// shows changes made meanwhile.
func (s *Store) List(ctx context.Context, name meta.Slot, next string, limit int) (meta.Page, error) {
	if err := s.ready(ctx); err != nil {
		return meta.Page{}, err
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	sl := s.db.slots[name]
	if sl == nil {
		return meta.Page{}, nil
	}
	names := make([]string, 0, len(sl.fields))
	for f := range sl.fields {
		if f > next {
			names = append(names, f)
		}
	}
	slices.Sort(names)
	p := meta.Page{Version: sl.version}
	if len(names) > limit {
		names = names[:limit]
		p.Next = names[limit-1]
	}
	for _, f := range names {
		r := sl.fields[f]
		p.Records = append(p.Records, meta.Record{Slot: name, Field: f, Value: bytes.Clone(r.value), Version: r.version})
	}
	return p, nil
}

// Version implements meta.Slots.
func (s *Store) Version(ctx context.Context, name meta.Slot) (uint64, error) {
	recs, err := s.Get(ctx, meta.Key{Slot: name})
	if err != nil {
		return 0, err
	}
	return recs[0].Version, nil
}

// Apply implements meta.Slots.
func (s *Store) Apply(ctx context.Context, name meta.Slot, conds []meta.If, sets []meta.Set) (uint64, error) {
	return s.apply(ctx, name, conds, sets, nil)
}

func (s *Store) apply(ctx context.Context, name meta.Slot, conds []meta.If, sets []meta.Set, l *lease) (uint64, error) {
	if err := meta.CheckApply(name, conds, sets); err != nil {
		return 0, err
	}
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	sl := s.db.slot(name)
	for _, c := range conds {
		on := sl
		if c.Store {
			on = s.db.slot(meta.StoreSlot)
		}
		if !on.holds(c) {
			return 0, fmt.Errorf("change %s: %w", name, meta.ErrConflict)
		}
	}
	s.db.change(name, sl, sets, l)
	return sl.version, nil
}

func (sl *slot) holds(c meta.If) bool {
	if c.NoOthers {
		for f := range sl.fields {
			if f != "." && !strings.HasPrefix(f, "/gone/") {
				return false
			}
		}
		return true
	}
	f, ok := sl.fields[c.Field]
	switch {
	case c.Absent:
		return !ok
	case c.Present:
		return ok
	}
	return ok && f.version == c.Version
}

// change makes the changes and tells the watches. d.mu is held.
func (d *db) change(name meta.Slot, sl *slot, sets []meta.Set, l *lease) {
	d.revision++
	sl.version = d.revision
	for _, s := range sets {
		if s.Value == nil {
			if _, ok := sl.fields[s.Field]; !ok {
				continue
			}
			delete(sl.fields, s.Field)
		} else {
			sl.fields[s.Field] = field{value: append([]byte{}, s.Value...), version: d.revision, lease: l}
		}
		sl.events = append(sl.events, meta.Event{
			Record:      meta.Record{Slot: name, Field: s.Field, Value: clone(s.Value), Version: d.revision},
			SlotVersion: d.revision,
		})
	}
	if len(sl.events) > 2*d.history {
		sl.forget(len(sl.events) - d.history)
	}
	close(sl.changed)
	sl.changed = make(chan struct{})
}

// clone copies a value and keeps nil (deleted) apart from empty.
func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, b...)
}

// forget drops the n oldest events, and with them the rest of the last one's
// change: a watch never resumes in the middle of a change.
func (sl *slot) forget(n int) {
	if n <= 0 {
		return
	}
	sl.forgotten = sl.events[n-1].SlotVersion
	for n < len(sl.events) && sl.events[n].SlotVersion == sl.forgotten {
		n++
	}
	sl.events = slices.Clone(sl.events[n:])
}
