package cache

import (
	"context"
	"fmt"
	"sync"

	"github.com/p2pfs/p2pfs/chunk"
)

// Sealed is what a publish made.
type Sealed struct {
	Object chunk.Object // with its size, and Sparse if blocks are zeros
	Sums   []uint32     // CRC-32C of every block
	Zeros  chunk.Bitmap // blocks that are all zeros
}

// publishAhead is from how many bytes on a publish sends a file to the disk
// before it makes writers wait.
const publishAhead = 1 << 20

// takeAtOnce is how many blocks of a base are fetched at a time.
const takeAtOnce = 4

// Publish makes the file, as it is at one moment of the call, a complete
// object on this machine, durable and kept (Keep). o says what it is called and
// how it is cut; the size is the file's. A write at the same time is in it as a
// whole, or fails with ErrSpent. Bytes are moved neither here nor there: the
// file is renamed. An empty object has no bytes to keep, and is none here.
//
// The note stays, durable, until Discard: so that whoever makes the object
// known finds out, after a crash, that it was being done. An error leaves a
// staged file as it was.
//
// The order, and what a process that is killed after a step leaves (k), or a
// machine that loses its power (p):
//
//  1. Blocks of the base are taken over, sums completed, zeros made holes.
//     k, p: staged, with the note.
//  2. The object's map is made under its own name, complete and kept; it does
//     not say yet that the blocks are durable. k, p: staged; a map without data
//     is removed at the next start.
//  3. If anything of the file was promised to be durable (Sync, SetNote), the
//     bytes of the data, the map and the note are made so. k, p: as before.
//  4. The data file is made read-only. k, p: staged, and made writable again
//     when it is opened.
//  5. It is renamed to the object's name. k: object and note. p: staged or
//     object, with the note; if nothing was promised, whatever has reached the
//     disk: a block that is not as the map sums it counts as absent.
//  6. Bytes and names are made durable. k, p: object and note.
//  7. The map says that the blocks are durable. k, p: object and note; what it
//     does not say is looked at.
//
// Publishes at the same time share a wait for the disk (see journal); where
// nothing was promised there is one.
func (s *Staged) Publish(ctx context.Context, o chunk.Object) (Sealed, error) {
	s.publish.Lock()
	defer s.publish.Unlock()
	var sealed Sealed
	err := s.c.withRoom(ctx, s.r, func() (err error) {
		sealed, err = s.publishNow(ctx, o)
		return err
	})
	if err != nil {
		return Sealed{}, fmt.Errorf("publish staged file %x as object %s: %w", s.id, o.ID.Short(), stagedError(s.r, err))
	}
	return sealed, nil
}

func (s *Staged) publishNow(ctx context.Context, o chunk.Object) (Sealed, error) {
	if err := s.prepare(ctx); err != nil {
		return Sealed{}, err
	}
	s.r.journal.expect()
	p := &publication{Staged: s, obj: o}
	defer p.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteMu.Lock()
	defer s.noteMu.Unlock()
	if err := s.changeable(); err != nil {
		return Sealed{}, err
	}
	p.obj.Size = s.size.Load()
	if s.base.foreign(0, p.obj.Size) {
		return Sealed{}, fmt.Errorf("blocks of object %s were not taken over", s.base.obj.ID.Short())
	}
	if err := p.obj.Validate(); err != nil {
		return Sealed{}, err
	}
	if p.obj.Size == 0 {
		return p.empty()
	}
	if err := p.sum(); err != nil {
		return Sealed{}, err
	}
	if err := p.seal(); err != nil {
		return Sealed{}, err
	}
	return Sealed{Object: p.obj, Sums: p.sums(), Zeros: p.zeros}, nil
}

// prepare does what needs no halt of the writers.
func (s *Staged) prepare(ctx context.Context) error {
	if s.spent.Load() {
		return ErrSpent
	}
	if err := s.takeAll(ctx); err != nil {
		return err
	}
	if s.size.Load() < publishAhead {
		return nil
	}
	s.c.step("ahead")
	if err := s.r.journal.flushAhead(s.data); err != nil {
		return err
	}
	return s.sumAhead(ctx)
}

// takeAll takes over what is still the base's.
func (s *Staged) takeAll(ctx context.Context) error {
	if s.base == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	turn := make(chan struct{}, takeAtOnce)
	err := s.base.each(0, s.size.Load(), func(block int, _ bool) error {
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := s.take(ctx, block); err != nil {
				once.Do(func() { first = err; cancel() })
			}
			<-turn
		}()
		return nil
	})
	wg.Wait()
	if first != nil {
		return first
	}
	return err
}

// sumAhead reads what the sums are not known of, while writers go on.
func (s *Staged) sumAhead(ctx context.Context) error {
	cut := chunk.Object{Size: s.size.Load(), BlockSize: s.unit}
	for b := range cut.Blocks() {
		span := cut.Block(b)
		s.mu.Lock()
		_, _, ok := s.sums.known(b, span.Len, s.c.zeros)
		epoch, ver := s.sums.at(b)
		s.mu.Unlock()
		if ok {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		sum, zero, err := s.readSum(span)
		if err != nil {
			continue // it was cut short, or will be found again
		}
		s.mu.Lock()
		if e, v := s.sums.at(b); e == epoch && v == ver {
			s.sums.set(b, span.Len, sum, zero)
		}
		s.mu.Unlock()
	}
	return nil
}

// readSum reads a block. A hole is not read.
func (s *Staged) readSum(span chunk.Span) (sum uint32, zero bool, err error) {
	if next, err := nextData(s.data, span.Off); err == nil && next >= span.End() {
		return s.c.zeros.of(span.Len), true, nil
	}
	sum, zero, _, err = s.c.buffers.sum(s.data, span)
	return sum, zero, err
}
