package memory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/p2pfs/p2pfs/meta"
)

// Watch implements meta.Slots.
func (s *Store) Watch(ctx context.Context, name meta.Slot, since uint64, on func([]meta.Event)) error {
	for {
		s.db.mu.Lock()
		sl := s.db.slot(name)
		gap := since < sl.forgotten
		i, _ := slices.BinarySearchFunc(sl.events, since, func(e meta.Event, v uint64) int {
			if e.SlotVersion <= v {
				return -1
			}
			return 1
		})
		events, changed := slices.Clone(sl.events[i:]), sl.changed
		s.db.mu.Unlock()
		if gap {
			return fmt.Errorf("watch %s since %d: %w", name, since, meta.ErrGap)
		}
		if len(events) > 0 && ctx.Err() == nil && s.ctx.Err() == nil {
			on(events)
			since = events[len(events)-1].SlotVersion
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// Lease implements meta.Slots.
func (s *Store) Lease(ctx context.Context, key meta.Key, value []byte, ttl time.Duration, conds []meta.If) (meta.Lease, error) {
	l := &lease{db: s.db, key: key, ttl: ttl}
	if _, err := s.apply(ctx, key.Slot, conds, []meta.Set{{Field: key.Field, Value: value}}, l); err != nil {
		return nil, err
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	l.timer = time.AfterFunc(ttl, l.expire)
	return l, nil
}

// lease is one record with an end. db.mu guards it.
type lease struct {
	db    *db
	key   meta.Key
	ttl   time.Duration
	timer *time.Timer
}

var _ meta.Lease = (*lease)(nil)

// Renew implements meta.Lease.
func (l *lease) Renew(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.db.mu.Lock()
	defer l.db.mu.Unlock()
	if !l.mine() || !l.timer.Stop() {
		return fmt.Errorf("renew %s: %w", l.name(), meta.ErrNotFound)
	}
	l.timer.Reset(l.ttl)
	return nil
}

// Release implements meta.Lease.
func (l *lease) Release(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.expire()
	return nil
}

func (l *lease) expire() {
	l.db.mu.Lock()
	defer l.db.mu.Unlock()
	l.timer.Stop()
	if l.mine() {
		l.db.change(l.key.Slot, l.db.slot(l.key.Slot), []meta.Set{{Field: l.key.Field}}, nil)
	}
}

// mine reports whether the record is still this lease's. db.mu is held.
func (l *lease) mine() bool {
	sl := l.db.slots[l.key.Slot]
	return sl != nil && sl.fields[l.key.Field].lease == l
}

func (l *lease) name() string {
	return strings.TrimSuffix(string(l.key.Slot)+"/"+l.key.Field, "/.")
}
