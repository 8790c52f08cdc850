package chunk

import (
	"errors"
	"time"
)

// BlockEvent is what became of one request for a block, for those who look on.
type BlockEvent struct {
	Object  Object
	Block   int
	From    NodeID
	Name    string        // of the peer
	Started time.Time     // when it was asked for
	Took    time.Duration // until it was here and checked, or given up
	Bytes   int64         // that came over the network
	Demand  bool          // somebody waited for it when it was asked for
	Hedge   bool          // another peer was late with it
	New     bool          // it was not here yet
	Err     error         // nil: it came
}

// tell tells whoever looks on what became of a flight. It runs in the loop of
// the object, before the board learns of it.
func (s *swarm) tell(f *flight, r result, now time.Time) {
	on := s.e.cfg.OnBlock
	if on == nil || errors.Is(r.err, ErrBusy) {
		return
	}
	on(BlockEvent{
		Object: s.o, Block: f.block, From: f.peer.Node, Name: f.peer.Name,
		Started: f.started, Took: now.Sub(f.started), Bytes: r.got,
		Demand: !f.spec, Hedge: f.hedge, New: r.err == nil && !s.board.have.Has(f.block), Err: r.err,
	})
}
