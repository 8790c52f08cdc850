package metatest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/meta"
)

// Mortal is a store as a process sees it that is killed at its n-th write:
// that write and all calls after it fail.
type Mortal struct {
	meta.Slots

	mu     sync.Mutex
	left   int
	sent   bool // the last write comes to the store, only its answer is lost
	fatal  string
	leases []meta.Lease
}

var _ meta.Slots = (*Mortal)(nil)

// NewMortal returns a store that lives for so many writes. With sent, one more
// is made, and not answered.
func NewMortal(s meta.Slots, writes int, sent bool) *Mortal {
	return &Mortal{Slots: s, left: writes, sent: sent}
}

// Dead reports whether the process was killed, and at what.
func (m *Mortal) Dead() (at string, dead bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fatal, m.fatal != ""
}

// Expire lets the leases of the dead process run out now.
func (m *Mortal) Expire(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.leases {
		if err := l.Release(ctx); err != nil {
			return err
		}
	}
	m.leases = nil
	return nil
}

// read returns an error if the process is dead.
func (m *Mortal) read() error {
	if at, dead := m.Dead(); dead {
		return fmt.Errorf("%w: killed at %s", meta.ErrUnavailable, at)
	}
	return nil
}

// write counts a write and tells whether to make it.
func (m *Mortal) write(what string) (do bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.fatal != "":
		return false, fmt.Errorf("%w: killed at %s", meta.ErrUnavailable, m.fatal)
	case m.left > 0:
		m.left--
		return true, nil
	}
	m.fatal = what
	return m.sent, fmt.Errorf("%w: killed at %s", meta.ErrUnavailable, what)
}

// Get implements meta.Slots.
func (m *Mortal) Get(ctx context.Context, keys ...meta.Key) ([]meta.Record, error) {
	if err := m.read(); err != nil {
		return nil, err
	}
	return m.Slots.Get(ctx, keys...)
}

// List implements meta.Slots.
func (m *Mortal) List(ctx context.Context, slot meta.Slot, next string, limit int) (meta.Page, error) {
	if err := m.read(); err != nil {
		return meta.Page{}, err
	}
	return m.Slots.List(ctx, slot, next, limit)
}

// Apply implements meta.Slots.
func (m *Mortal) Apply(ctx context.Context, slot meta.Slot, conds []meta.If, sets []meta.Set) (uint64, error) {
	field := ""
	if len(sets) > 0 {
		field = sets[0].Field
	}
	do, err := m.write(fmt.Sprintf("a change of %.1s/%.4s", slot, field))
	if !do {
		return 0, err
	}
	v, aerr := m.Slots.Apply(ctx, slot, conds, sets)
	if err != nil {
		return 0, err
	}
	return v, aerr
}

// Lease implements meta.Slots.
func (m *Mortal) Lease(ctx context.Context, key meta.Key, value []byte, ttl time.Duration, conds []meta.If) (meta.Lease, error) {
	do, err := m.write("a lease of " + string(key.Slot))
	if !do {
		return nil, err
	}
	l, lerr := m.Slots.Lease(ctx, key, value, ttl, conds)
	if lerr == nil {
		m.mu.Lock()
		m.leases = append(m.leases, l)
		m.mu.Unlock()
	}
	if err = errors.Join(err, lerr); err != nil {
		return nil, err
	}
	return &mortalLease{m, l}, nil
}

type mortalLease struct {
	m *Mortal
	l meta.Lease
}

// Renew implements meta.Lease.
func (l *mortalLease) Renew(ctx context.Context) error {
	if err := l.m.read(); err != nil {
		return err
	}
	return l.l.Renew(ctx)
}

// Release implements meta.Lease.
func (l *mortalLease) Release(ctx context.Context) error {
	do, err := l.m.write("a release")
	if !do {
		return err
	}
	rerr := l.l.Release(ctx)
	if err != nil {
		return err
	}
	return rerr
}
