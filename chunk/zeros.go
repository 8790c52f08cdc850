package chunk

import (
	"context"
	"fmt"
	"time"
)

// States of asking for an object's zero blocks.
const (
	zerosUnknown = iota
	zerosAsked
	zerosKnown
)

// askZeros asks once which blocks are all zero, when that is known of the
// object. Speculation waits for the answer, demand does not.
func (s *swarm) askZeros(now time.Time) {
	d := &s.disc
	if !s.o.Sparse || d.zeros != zerosUnknown || now.Before(d.zerosAt) || s.e.cfg.Facts == nil {
		return
	}
	d.zeros = zerosAsked
	s.workers.Add(1)
	go func() {
		defer s.workers.Done()
		ctx, cancel := context.WithTimeout(s.ctx, askTimeout)
		defer cancel()
		zeros, err := s.e.cfg.Facts.Zeros(ctx, s.o)
		if err == nil && zeros.Len() != 0 && zeros.Len() != s.o.Blocks() {
			err = fmt.Errorf("zero blocks: a map of %d blocks for %d", zeros.Len(), s.o.Blocks())
		}
		if err == nil && zeros.Len() != 0 {
			err = s.file.PutZero(zeros)
		}
		s.post(func(now time.Time) { s.zeroed(zeros, err, now) })
	}()
}

func (s *swarm) zeroed(zeros Bitmap, err error, now time.Time) {
	d := &s.disc
	if err != nil {
		d.zeros, d.zerosAt = zerosUnknown, now.Add(s.e.cfg.Limits.Relocate)
		s.e.log.Warn("learning zero blocks failed", "object", s.o.ID.Short(), "err", err)
		return
	}
	d.zeros = zerosKnown
	s.arrived(zeros, true, now)
}
