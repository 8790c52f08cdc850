package node

import (
	"context"
	"fmt"
	"sync"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/nodepb"
)

const (
	// traceLength is how many requests are remembered, of all objects.
	traceLength = 8192
	// traceBatch is how many events one message carries.
	traceBatch = 512
)

// trace remembers the last requests for blocks. Safe for concurrent use.
type trace struct {
	mu    sync.Mutex
	ring  []chunk.BlockEvent // at index number % traceLength
	next  uint64             // number of the next event
	added chan struct{}      // closed with the next event; nil: nobody waits
}

// add is told of a request that has ended.
func (t *trace) add(e chunk.BlockEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.ring) < traceLength {
		t.ring = append(t.ring, e)
	} else {
		t.ring[t.next%traceLength] = e
	}
	t.next++
	if t.added != nil {
		close(t.added)
		t.added = nil
	}
}

// since returns the events of an object from a number on, the number to go on
// from, how many before that were forgotten, and what is closed with the next
// one.
func (t *trace) since(from uint64, id chunk.ObjectID) (events []chunk.BlockEvent, next, forgotten uint64, more <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := max(from, t.next-uint64(len(t.ring)))
	for i := first; i < t.next; i++ {
		if e := t.ring[i%traceLength]; e.Object.ID == id {
			events = append(events, e)
		}
	}
	if t.added == nil {
		t.added = make(chan struct{})
	}
	return events, t.next, first - from, t.added
}

// traceFile tells of the requests for the blocks of a file, and with follow of
// those to come until ctx ends.
func (n *Node) traceFile(ctx context.Context, r *nodepb.TraceRequest, send func(*nodepb.TraceReply) error) error {
	at, err := resolve(ctx, n.view, string(r.GetPath()))
	if err != nil {
		return err
	}
	if at.entry.Kind != meta.KindFile {
		return fmt.Errorf("%q is not a file: %w", "/"+at.path, meta.ErrIsDir)
	}
	from := uint64(0)
	for {
		events, next, forgotten, more := n.trace.since(from, at.entry.Object.ID)
		if err := sendTrace(events, forgotten, send); err != nil || !r.GetFollow() {
			return err
		}
		from = next
		select {
		case <-more:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func sendTrace(events []chunk.BlockEvent, forgotten uint64, send func(*nodepb.TraceReply) error) error {
	for len(events) > 0 || forgotten > 0 {
		k := min(len(events), traceBatch)
		r := &nodepb.TraceReply{Forgotten: int64(forgotten)}
		for _, e := range events[:k] {
			r.Events = append(r.Events, traceEvent(e))
		}
		if err := send(r); err != nil {
			return err
		}
		events, forgotten = events[k:], 0
	}
	return nil
}

func traceEvent(e chunk.BlockEvent) *nodepb.TraceEvent {
	out := &nodepb.TraceEvent{
		Block: int64(e.Block), Node: e.From.String(), Name: e.Name, StartedUnixNs: e.Started.UnixNano(),
		TookNs: int64(e.Took), Bytes: e.Bytes, Demand: e.Demand, Hedge: e.Hedge, Wasted: e.Err == nil && !e.New,
	}
	if e.Err != nil {
		out.Error = e.Err.Error()
	}
	return out
}
