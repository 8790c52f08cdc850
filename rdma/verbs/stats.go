package verbs

import (
	"sync"
)

// RailStats is a copy of what came over one own port, from all peers.
type RailStats struct {
	Bytes   uint64 `json:"bytes"`
	Fetches uint64 `json:"fetches"`
}

// ReadStats is a copy of a Client's counters.
type ReadStats struct {
	Rails    map[string]RailStats `json:"rails,omitempty"` // by port, as in mlx5_0:1
	Links    int                  `json:"links"`
	Messages uint64               `json:"messages"` // control messages sent
	Pauses   uint64               `json:"pauses"`   // of connections that failed
	LastFail string               `json:"lastFail,omitempty"`
}

// railTotals counts. The zero value is ready.
type railTotals struct {
	mu     sync.Mutex
	rails  map[string]RailStats
	pauses uint64
	last   string
}

func (t *railTotals) worked(rail string, bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rails == nil {
		t.rails = make(map[string]RailStats)
	}
	s := t.rails[rail]
	s.Bytes += uint64(bytes)
	s.Fetches++
	t.rails[rail] = s
}

func (t *railTotals) failed(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pauses++
	t.last = err.Error()
}

// Stats returns a copy of the counters.
func (c *Client) Stats() ReadStats {
	s := ReadStats{Rails: make(map[string]RailStats), Messages: c.sent.Load()}
	c.total.mu.Lock()
	for k, v := range c.total.rails {
		s.Rails[k] = v
	}
	s.Pauses, s.LastFail = c.total.pauses, c.total.last
	c.total.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.peers {
		p.mu.Lock()
		for _, r := range p.links {
			if l := r.link.Load(); l != nil && l.alive() {
				s.Links++
			}
		}
		p.mu.Unlock()
	}
	return s
}
