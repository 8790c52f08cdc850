package meta

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"time"
)

const (
	// dirLockSlot holds the right to move directories to other directories.
	dirLockSlot Slot = "lock/dirs"
	// dirJournal is its field that tells of the last such move.
	dirJournal = "move"
	// dirLockTTL is how long a holder that died keeps the others waiting.
	dirLockTTL = 5 * time.Second
	// releaseTimeout bounds what is done on behalf of a caller who left.
	releaseTimeout = 3 * time.Second
	// depthMax is how deep directories may lie.
	depthMax = 10_000
)

// dirLock is the right to move a directory to another directory. One at a time
// has it in a cluster, so that two moves never make a cycle together.
//
// It is fenced. The holder writes what it is about to do into the lock's slot,
// on the condition that the lock is still its own, and asks once more that it
// is after the open decision of the move is in the store. Who gets the lock
// next ends the move it finds there before anything else: where it was not
// done, it is aborted, and whatever the former holder sends late fails.
type dirLock struct {
	c       *Catalog
	lease   Lease
	version uint64 // of the leased record
	journal Record
}

// lockDirs waits for the lock until ctx ends.
func (c *Catalog) lockDirs(ctx context.Context) (*dirLock, error) {
	select {
	case c.dirMoves <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l, err := c.takeDirLock(ctx)
	if err != nil {
		<-c.dirMoves
		return nil, fmt.Errorf("wait for the right to move directories: %w", err)
	}
	return l, nil
}

func (c *Catalog) takeDirLock(ctx context.Context) (*dirLock, error) {
	token := make([]byte, 16)
	rand.Read(token)
	key := Key{dirLockSlot, self}
	for try := 0; ; try++ {
		lease, err := c.slots.Lease(ctx, key, token, dirLockTTL, []If{{Field: self, Absent: true}})
		if err == nil {
			l := &dirLock{c: c, lease: lease}
			if err = l.begin(ctx, token); err == nil {
				return l, nil
			}
			l.release(ctx)
		}
		if !errors.Is(err, ErrConflict) {
			return nil, err
		}
		if err := pause(ctx, try); err != nil {
			return nil, err
		}
	}
}

// begin ends what the former holder of the lock left behind.
func (l *dirLock) begin(ctx context.Context, token []byte) error {
	recs, err := l.c.slots.Get(ctx, Key{dirLockSlot, self}, Key{dirLockSlot, dirJournal})
	if err != nil {
		return err
	}
	if !bytes.Equal(recs[0].Value, token) {
		return ErrConflict
	}
	l.version, l.journal = recs[0].Version, recs[1]
	if l.journal.Value == nil {
		return nil
	}
	d, err := unmarshalDirMove(l.journal.Value)
	if err != nil {
		return err
	}
	return l.c.endDirMove(ctx, d)
}

// endDirMove makes sure that a move of a directory is decided and over.
func (c *Catalog) endDirMove(ctx context.Context, d dirMove) error {
	key := Key{dirSlot(d.to), d.tx.field()}
	for {
		// The decision is read first: it does not go from open to done
		// without the mark at the source.
		recs, err := c.slots.Get(ctx, key)
		if err != nil || recs[0].Value == nil {
			return err
		}
		dec, err := unmarshalDecision(recs[0].Value)
		if err != nil {
			return err
		}
		src, mv, err := c.underWay(ctx, d.from)
		if err != nil {
			return err
		}
		if mv != nil && mv.tx == d.tx {
			return c.settle(ctx, d.from, src, mv)
		}
		if dec.outcome != moveOpen {
			return nil
		}
		dec.outcome = moveAborted
		b, err := marshalDecision(dec, recs[0].Value)
		if err != nil {
			return err
		}
		_, err = c.slots.Apply(ctx, key.Slot, []If{{Field: key.Field, Version: recs[0].Version}}, []Set{{key.Field, b}})
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

// note writes what is about to be moved. ErrConflict: the lock is lost.
func (l *dirLock) note(ctx context.Context, d dirMove) error {
	b, err := marshalDirMove(d, l.journal.Value)
	if err != nil {
		return err
	}
	conds := []If{{Field: self, Version: l.version}, {Field: dirJournal, Version: l.journal.Version}}
	if l.journal.Value == nil {
		conds[1] = If{Field: dirJournal, Absent: true}
	}
	at, err := l.c.slots.Apply(ctx, dirLockSlot, conds, []Set{{dirJournal, b}})
	if err != nil {
		return err
	}
	l.journal = Record{Slot: dirLockSlot, Field: dirJournal, Value: b, Version: at}
	return nil
}

// held returns ErrConflict if the lock is lost.
func (l *dirLock) held(ctx context.Context) error {
	recs, err := l.c.slots.Get(ctx, Key{dirLockSlot, self})
	if err == nil && (recs[0].Value == nil || recs[0].Version != l.version) {
		err = fmt.Errorf("the right to move directories was lost: %w", ErrConflict)
	}
	return err
}

// unlock lets the next one have the lock, also when the caller has left.
func (l *dirLock) unlock(ctx context.Context) {
	l.release(ctx)
	<-l.c.dirMoves
}

func (l *dirLock) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := l.lease.Release(ctx); err != nil {
		l.c.log.Debug("the right to move directories runs out by itself", "err", err)
	}
}

// checkLoop walks up from a directory: ErrLoop if it meets moved, ErrNotFound
// if a directory on the way was removed.
func (c *Catalog) checkLoop(ctx context.Context, dir, moved InodeID) error {
	for range depthMax {
		if dir == moved {
			return ErrLoop
		}
		if dir == RootDir || dir == 0 {
			return nil
		}
		d, err := c.Dir(ctx, dir)
		if err != nil {
			return err
		}
		dir = d.Parent
	}
	return fmt.Errorf("directories lie deeper than %d: %w", depthMax, ErrLoop)
}

// pause waits a little, longer after more tries, until ctx ends.
func pause(ctx context.Context, try int) error {
	most := min(time.Millisecond<<min(try, 7), 100*time.Millisecond)
	t := time.NewTimer(most/2 + mrand.N(most))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
