package meta

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
)

// NodeTTL is how long a node counts as alive after its last renewal.
const NodeTTL = 10 * time.Second

// errStarted: the record is of another start of the same node.
var errStarted = errors.New("this node was started anew")

// Membership is a node's leased record: while it stands, others choose the
// node as a provider.
type Membership struct {
	c    *Catalog
	info NodeInfo
	ttl  time.Duration

	mu    sync.Mutex
	lease Lease // nil: never joined
}

// JoinNode writes the node's record. Run keeps it; without Run it vanishes
// after ttl (0: NodeTTL). ErrExist: the id lives on another machine. A record
// of the same machine is taken over: the lock on the cache root proves that
// its process is gone.
func (c *Catalog) JoinNode(ctx context.Context, info NodeInfo, ttl time.Duration) (*Membership, error) {
	if ttl <= 0 {
		ttl = NodeTTL
	}
	m := &Membership{c: c, info: info, ttl: ttl}
	if err := m.join(ctx); err != nil {
		return nil, err
	}
	if err := c.enroll(ctx, info); err != nil {
		return nil, err
	}
	return m, nil
}

// Node returns the record of a node. ErrNotFound: it does not live.
func (c *Catalog) Node(ctx context.Context, id chunk.NodeID) (NodeInfo, error) {
	recs, err := c.slots.Get(ctx, Key{nodeSlot(id), self})
	if err == nil && recs[0].Value == nil {
		err = ErrNotFound
	}
	if err != nil {
		return NodeInfo{}, fmt.Errorf("read node %s: %w", id.Short(), err)
	}
	return unmarshalNode(id, recs[0].Value)
}

func (m *Membership) join(ctx context.Context) error {
	b, err := marshalNode(m.info)
	if err != nil {
		return err
	}
	key := Key{nodeSlot(m.info.Node), self}
	// No record is written into the store of another cluster.
	if err := m.c.sameStore(ctx); err != nil {
		return fmt.Errorf("join node %q (%s): %w", m.info.Name, m.info.Node.Short(), err)
	}
	for {
		cond, err := m.mayTake(ctx, key)
		if err != nil {
			return fmt.Errorf("join node %q (%s): %w", m.info.Name, m.info.Node.Short(), err)
		}
		l, err := m.c.slots.Lease(ctx, key, b, m.ttl, []If{cond})
		if errors.Is(err, ErrConflict) {
			continue
		}
		if err != nil {
			return fmt.Errorf("join node %q (%s): %w", m.info.Name, m.info.Node.Short(), err)
		}
		m.mu.Lock()
		m.lease = l
		m.mu.Unlock()
		return nil
	}
}

// mayTake returns the condition under which the node's record is ours.
func (m *Membership) mayTake(ctx context.Context, key Key) (If, error) {
	recs, err := m.c.slots.Get(ctx, key)
	if err != nil {
		return If{}, err
	}
	r := recs[0]
	if r.Value == nil {
		return If{Field: self, Absent: true}, nil
	}
	// One that cannot be read is of a newer program, which says so itself.
	n, err := unmarshalNode(m.info.Node, r.Value)
	if err != nil {
		return If{}, err
	}
	m.mu.Lock()
	joined := m.lease != nil
	m.mu.Unlock()
	if joined && n.Incarnation != m.info.Incarnation {
		return If{}, fmt.Errorf("%w: %w", errStarted, ErrExist)
	}
	if n.Host != m.info.Host {
		return If{}, fmt.Errorf("this node id is alive on host %q, at %s; was its cache directory copied?: %w", n.Host, firstAddr(n.Addrs), ErrExist)
	}
	return If{Field: self, Version: r.Version}, nil
}

func firstAddr(addrs map[string]string) string {
	if a := addrs["tcp"]; a != "" {
		return a
	}
	for _, a := range addrs {
		return a
	}
	return "an unknown address"
}

// Run renews the record at a third of its ttl until ctx ends (nil), and writes
// it anew when it was lost. An unreachable store is waited for. It ends with
// ErrExist when another machine, or a later start of this node, took the id
// meanwhile: its record stays as it is.
func (m *Membership) Run(ctx context.Context) error {
	tick := time.NewTicker(m.ttl / 3)
	defer tick.Stop()
	var other time.Time // since when another start's record is in the place of ours
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := m.renew(ctx)
		switch {
		case !errors.Is(err, errStarted):
			other = time.Time{}
		case other.IsZero():
			other = time.Now()
		}
		// One that came back with an old copy of the store runs out.
		if errors.Is(err, ErrExist) && (other.IsZero() || time.Since(other) > 2*m.ttl) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			m.c.log.Debug("node record not renewed", "err", err)
		}
	}
}

func (m *Membership) renew(ctx context.Context) error {
	m.mu.Lock()
	l := m.lease
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, m.ttl/2)
	defer cancel()
	err := l.Renew(ctx)
	if errors.Is(err, ErrNotFound) {
		return m.join(ctx)
	}
	return err
}

// Leave removes the record, so that no one waits for the node. Run must have
// ended.
func (m *Membership) Leave(ctx context.Context) error {
	m.mu.Lock()
	l := m.lease
	m.mu.Unlock()
	if err := l.Release(ctx); err != nil {
		return fmt.Errorf("leave as node %q: %w", m.info.Name, err)
	}
	return nil
}
