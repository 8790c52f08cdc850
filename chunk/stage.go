package chunk

import (
	"context"
	"fmt"
	"time"
)

// stage returns where a block can be written while it arrives; nil if the
// transport, the file or the moment does not allow it, and the block goes
// through lent memory instead.
func (s *swarm) stage(block int) (Streamer, Stage) {
	streamer, ok := s.e.cfg.Transport.(Streamer)
	if !ok || time.Now().UnixNano() < s.storeAt.Load() {
		return nil, nil
	}
	file := s.file
	if late, ok := file.(*lateFile); ok {
		file = late.made()
	}
	stager, ok := file.(Stager)
	if !ok {
		return nil, nil
	}
	st, err := stager.Stage(block)
	if err != nil {
		return nil, nil // Put will say why, if it still holds
	}
	return streamer, st
}

// stream brings a block here piece by piece. again says that it could not be
// written, and has to come once more for those who wait.
func (s *swarm) stream(ctx context.Context, from Peer, ref BlockRef, check *checker, streamer Streamer, st Stage, came func(n int)) (r result, again bool) {
	start := time.Now()
	var putErr error
	b, err := streamer.FetchTo(ctx, from, ref, func(piece []byte) error {
		came(len(piece))
		putErr = st.Write(piece)
		return putErr
	})
	r.took = time.Since(start)
	switch {
	case putErr != nil:
		st.Abort()
		return r, true
	case err != nil:
		st.Abort()
		r.err = fetchError(ctx, err)
		return r, false
	case b.Ref != ref:
		st.Abort()
		r.err = fmt.Errorf("answer is not the block asked for: %w", ErrCorrupt)
		return r, false
	}
	if !b.Zero {
		r.got = ref.Len
	}
	if r.sum, r.bound, r.err = check.end(ctx, b); r.err != nil {
		st.Abort()
		return r, false
	}
	if b.Zero {
		st.Abort()
		s.store(ref.Index, b, &r)
		return r, false
	}
	if err := st.Commit(b.Sum); err != nil {
		return r, true
	}
	r.stored = true
	return r, false
}

// fetchError makes sure that an error of a fetch that was ended says so.
func fetchError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}
