package chunk

import (
	"bytes"
	"slices"
	"sync/atomic"
	"time"
)

// counts are the engine's counters.
type counts struct {
	received, blocks, duplicates, hedges, demoted, failures, uncached atomic.Int64
}

// Stats is a copy of the engine's counters since it was made.
type Stats struct {
	ReceivedBytes int64 // payload that came from other nodes, useful or not
	Blocks        int64 // blocks that came and were new
	Duplicates    int64 // blocks that came twice
	Hedges        int64 // late blocks asked of another peer too
	Demoted       int64 // times a peer's bytes were disowned by a keeper
	Failures      int64 // fetches that failed
	Uncached      int64 // blocks that could not be stored
	InFlight      int   // blocks being fetched now
	Objects       int   // objects that are open
	Peers         []PeerStats
}

// PeerStats is what this engine knows of one node.
type PeerStats struct {
	Node          NodeID
	Name          string
	ReceivedBytes int64
	Blocks        int64
	Rate          float64 // bytes per second, lately; 0: unknown
	InFlight      int
	Failures      int           // in a row
	Penalty       time.Duration // how much longer it is not asked
	LastError     string        // empty: none yet
}

// Stats returns the counters, peers ordered by node.
func (e *Engine) Stats() Stats {
	c := &e.counts
	st := Stats{
		ReceivedBytes: c.received.Load(), Blocks: c.blocks.Load(), Duplicates: c.duplicates.Load(),
		Hedges: c.hedges.Load(), Demoted: c.demoted.Load(), Failures: c.failures.Load(), Uncached: c.uncached.Load(),
	}
	e.mu.Lock()
	st.Objects = len(e.swarms)
	e.mu.Unlock()
	now := time.Now()
	e.gate.mu.Lock()
	st.InFlight = e.gate.used
	for _, p := range e.gate.peers {
		st.Peers = append(st.Peers, p.stats(now))
	}
	e.gate.mu.Unlock()
	slices.SortFunc(st.Peers, func(a, b PeerStats) int { return bytes.Compare(a.Node[:], b.Node[:]) })
	return st
}

func (st *standing) stats(now time.Time) PeerStats {
	until := st.until
	if st.banned.After(until) {
		until = st.banned
	}
	p := PeerStats{
		Node: st.node, Name: st.name, ReceivedBytes: st.received, Blocks: st.blocks, Rate: st.rate,
		InFlight: st.flights, Failures: st.strikes, Penalty: max(until.Sub(now), 0),
	}
	if st.lastErr != nil {
		p.LastError = st.lastErr.Error()
	}
	return p
}
