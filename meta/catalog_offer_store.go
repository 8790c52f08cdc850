package meta

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/p2pfs/p2pfs/meta/metapb"
)

// epochsCleared is how many earlier epochs are taken out of a store's slot when
// it goes on in a new one: there is one, or one a node that knows of another.
const epochsCleared = 64

// Lost returns the channel that gets a value when the store was found without
// its own record, or in another epoch: time for Restore.
func (c *Catalog) Lost() <-chan struct{} { return c.lost }

// tellLost wakes whoever restores.
func (c *Catalog) tellLost() {
	select {
	case c.lost <- struct{}{}:
	default:
	}
}

// WatchStore wakes the receiver of Lost when the store's own record changes,
// until ctx ends (nil).
func (c *Catalog) WatchStore(ctx context.Context) error {
	since, err := c.raw.Version(ctx, StoreSlot)
	if err != nil {
		return fmt.Errorf("watch the store's own record: %w", err)
	}
	err = c.raw.Watch(ctx, StoreSlot, since, func([]Event) { c.tellLost() })
	if err != nil {
		c.tellLost()
		return fmt.Errorf("watch the store's own record: %w", err)
	}
	return nil
}

// Live reports whether this process has seen the store it belongs to: only
// then may it make its record again. One that starts cannot tell a store that
// was emptied from another one.
func (c *Catalog) Live() bool { return c.live.Load() }

// Joined returns the store as it was joined; false before.
func (c *Catalog) Joined() (StoreInfo, bool) {
	s := c.store.Load()
	if s == nil {
		return StoreInfo{}, false
	}
	return *s, true
}

// Restore returns the store's record as it is to be used from now on, for a
// node that knows it as known. A store without one gets it again, with the same
// cluster and secret, in a new epoch; of several nodes that try one wins and the
// others take that. A store in an epoch that known calls an earlier one was
// restored from a copy, and goes on in a new one. Epochs that only this node
// knows of are added. ErrOtherStore with ErrUnavailable: it is another
// cluster's. The caller has made sure that the store is the right one (Live, or
// the user says so), and tells the catalog by UseStore.
func (c *Catalog) Restore(ctx context.Context, known StoreInfo) (StoreInfo, error) {
	info, err := c.restore(ctx, known, false)
	if err != nil {
		return StoreInfo{}, fmt.Errorf("restore the store's own record: %w", err)
	}
	return info, nil
}

// NewEpoch is Restore for a store that is known to be behind, though it is in
// the epoch that it was in: versions it gives out now were given out before.
func (c *Catalog) NewEpoch(ctx context.Context, known StoreInfo) (StoreInfo, error) {
	info, err := c.restore(ctx, known, true)
	if err != nil {
		return StoreInfo{}, fmt.Errorf("begin a new epoch of the store: %w", err)
	}
	return info, nil
}

func (c *Catalog) restore(ctx context.Context, known StoreInfo, behind bool) (StoreInfo, error) {
	for {
		recs, err := c.raw.Get(ctx, Key{StoreSlot, self})
		if err != nil {
			return StoreInfo{}, err
		}
		info, b, err := restored(recs[0].Value, known, behind)
		if err != nil {
			return StoreInfo{}, err
		}
		if b != nil {
			cond := If{Field: self, Version: recs[0].Version}
			if recs[0].Value == nil {
				cond = If{Field: self, Absent: true}
			}
			sets := []Set{{self, b}, {epochField(info.Epoch), []byte{}}}
			for _, e := range info.Epochs[max(0, len(info.Epochs)-epochsCleared):] {
				sets = append(sets, Set{Field: epochField(e)})
			}
			_, err := c.raw.Apply(ctx, StoreSlot, []If{cond}, sets)
			if errors.Is(err, ErrConflict) {
				continue
			}
			if err != nil {
				return StoreInfo{}, err
			}
		}
		return info, c.makeRoot(ctx)
	}
}

// restored returns what the store's record becomes, and its bytes; nil bytes:
// it stays as it is. old is the record, nil if there is none.
func restored(old []byte, known StoreInfo, behind bool) (StoreInfo, []byte, error) {
	info := known
	info.Created = false
	if old != nil {
		var err error
		if info, err = UnmarshalStore(old); err != nil {
			return StoreInfo{}, nil, err
		}
		if info.Cluster != known.Cluster || !slices.Equal(info.Secret, known.Secret) {
			return StoreInfo{}, nil, fmt.Errorf("%w: %w: it is of cluster %s, and was of %s", ErrUnavailable, ErrOtherStore, info.Cluster, known.Cluster)
		}
		if info.ReadOnly {
			return StoreInfo{}, nil, fmt.Errorf("%w: the store needs a newer program to be written", ErrFormat)
		}
	}
	history := slices.Clone(info.Epochs)
	add := func(e Epoch) {
		if !slices.Contains(history, e) {
			history = append(history, e)
		}
	}
	next := info.Epoch
	anew := old == nil || slices.Contains(known.Epochs, info.Epoch) || behind && info.Epoch == known.Epoch
	if anew {
		rand.Read(next[:])
		add(info.Epoch)
	}
	for _, e := range append(slices.Clone(known.Epochs), known.Epoch) {
		if e != next {
			add(e)
		}
	}
	if !anew && len(history) == len(info.Epochs) {
		return info, nil, nil
	}
	info.Epoch, info.Epochs = next, history
	b, err := marshalStoreOver(info, old)
	return info, b, err
}

// marshalStoreOver is MarshalStore that keeps what this program does not know
// of in the record before.
func marshalStoreOver(s StoreInfo, old []byte) ([]byte, error) {
	if old == nil {
		return MarshalStore(s)
	}
	var m metapb.Store
	if err := proto.Unmarshal(old, &m); err != nil {
		return nil, fmt.Errorf("rewrite store record: %w: %w", ErrFormat, err)
	}
	m.Epoch, m.Epochs = s.Epoch[:], nil
	for _, e := range s.Epochs {
		m.Epochs = append(m.Epochs, e[:])
	}
	b, err := proto.Marshal(&m)
	if err != nil {
		return nil, fmt.Errorf("write store record: %w", err)
	}
	return b, nil
}
