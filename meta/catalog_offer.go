package meta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Offer is a name as a node remembers it: what it stood for, or that it was
// removed, and since when.
type Offer struct {
	Name   string
	Entry  Entry // unless Gone; its Name is Name
	Gone   bool
	Origin Origin
}

// Fate says what became of an offer.
type Fate uint8

// The fates of offers.
const (
	FateTaken Fate = iota + 1 // the store says so now
	FateKnown                 // the store said so before
	FateGone                  // the name was removed later
	FateOlder                 // the name came to stand for something else later
	FateVoid                  // a tombstone of nothing
)

const (
	// offerBatch is how many names one change offers: each is two conditions,
	// and with XAttrsMax bytes for each it is a request that stores take.
	offerBatch = 48
	// offersInFlight is how many such changes of one call are under way.
	offersInFlight = 4
)

// Offer brings names back into a directory of the store. For each name the
// later of what is offered and what is there stands, whatever comes first: an
// offer fills in a name that is absent, takes the place of what is older, and
// gives way to what is later, a tombstone as late as itself included. A name whose
// time is over is not offered. Offers of
// one call have different names. ErrNotFound: the directory is not there.
func (c *Catalog) Offer(ctx context.Context, dir InodeID, offers []Offer) ([]Fate, error) {
	fates := make([]Fate, len(offers))
	type part struct{ from, to int }
	var parts []part
	for i := 0; i < len(offers); i += offerBatch {
		parts = append(parts, part{i, min(i+offerBatch, len(offers))})
	}
	err := inParallel(ctx, offersInFlight, slices.Values(parts), func(ctx context.Context, p part) error {
		return c.offerBatch(ctx, dir, offers[p.from:p.to], fates[p.from:p.to])
	})
	if err != nil {
		return nil, fmt.Errorf("offer names of directory %016x: %w", uint64(dir), err)
	}
	return fates, nil
}

// stand is what the store says of one name.
type stand struct {
	entry Record // nil Value: none
	gone  Record
	at    rank // of entry
	goneR rank // of gone
}

func (c *Catalog) offerBatch(ctx context.Context, dir InodeID, offers []Offer, fates []Fate) error {
	slot := dirSlot(dir)
	keys := make([]Key, 0, 2*len(offers)+1)
	for _, o := range offers {
		keys = append(keys, Key{slot, o.Name}, Key{slot, goneField + o.Name})
	}
	keys = append(keys, Key{slot, self})
	for {
		info := c.store.Load()
		if info == nil {
			return errors.New("the cluster has not been joined")
		}
		recs, err := c.raw.Get(ctx, keys...)
		if err != nil {
			return err
		}
		if _, err := dirOf(dir, recs[len(recs)-1]); err != nil {
			return err
		}
		conds := []If{{Field: self, Present: true}}
		var sets []Set
		for i, o := range offers {
			st, err := info.stand(recs[2*i], recs[2*i+1])
			if err != nil {
				return err
			}
			more, fate, err := info.decide(o, st)
			if err != nil {
				return err
			}
			if fates[i] = fate; len(more) > 0 {
				sets = append(sets, more...)
				conds = append(conds, unchanged(st.entry), unchanged(st.gone))
			}
		}
		if len(sets) == 0 {
			return nil
		}
		if _, err = c.raw.Apply(ctx, slot, conds, sets); !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

// unchanged is the condition that a record is still what was read.
func unchanged(r Record) If {
	if r.Value == nil {
		return If{Field: r.Field, Absent: true}
	}
	return If{Field: r.Field, Version: r.Version}
}

func (s *StoreInfo) stand(entry, gone Record) (stand, error) {
	st := stand{entry: entry, gone: gone}
	if entry.Value != nil {
		o, err := s.originOf(entry)
		if err != nil {
			return stand{}, err
		}
		st.at = s.rank(o)
	}
	if gone.Value != nil {
		o, _, err := s.unmarshalGone(gone)
		if err != nil {
			return stand{}, err
		}
		st.goneR = s.rank(o)
	}
	return st, nil
}

// decide returns what an offer changes: at most two records.
func (s *StoreInfo) decide(o Offer, st stand) ([]Set, Fate, error) {
	at := s.rank(o.Origin)
	if o.Gone {
		return s.decideGone(o, at, st)
	}
	switch {
	case o.Entry.Ended(time.Now()):
		return nil, FateGone, nil
	case st.gone.Value != nil && !st.goneR.less(at):
		return nil, FateGone, nil
	case st.entry.Value != nil && st.at == at:
		return nil, FateKnown, nil
	case st.entry.Value != nil && at.less(st.at):
		return nil, FateOlder, nil
	}
	o.Entry.Name = o.Name
	b, err := MarshalEntry(o.Entry, nil)
	if err != nil {
		return nil, 0, err
	}
	return []Set{{o.Name, withOrigin(b, o.Origin)}}, FateTaken, nil
}

func (s *StoreInfo) decideGone(o Offer, at rank, st stand) ([]Set, Fate, error) {
	var sets []Set
	fate := FateKnown
	if st.entry.Value != nil {
		if at.less(st.at) {
			return nil, FateVoid, nil
		}
		sets = append(sets, Set{Field: o.Name})
		fate = FateTaken
	}
	if st.gone.Value == nil || st.goneR.less(at) {
		b, err := marshalGone(o.Origin, time.Now())
		if err != nil {
			return nil, 0, err
		}
		sets = append(sets, Set{goneField + o.Name, b})
		fate = FateTaken
	}
	return sets, fate, nil
}
