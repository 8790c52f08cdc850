package sim

import (
	"slices"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
)

// asked takes a request in.
func (n *node) asked(r *request) {
	w := n.w
	switch {
	case r.dropped:
		return
	case n.nature == dead:
		n.refuse(r, errGone, deadTakes)
		return
	case n.away:
		n.refuse(r, errGone, 0)
		return
	case r.toRun != n.peer.Incarnation:
		n.refuse(r, chunk.ErrWrongNode, 0)
		return
	case !n.have.Has(r.ask.Block):
		n.refuse(r, chunk.ErrNotHeld, 0)
		return
	}
	r.upload = chunk.Upload{Object: w.object.ID, Block: r.ask.Block, From: r.by.peer.Node, Demand: r.ask.Demand, Whole: n.whole()}
	if err := n.uploads.Ask(&r.upload, w.time()); err != nil {
		n.refuse(r, err, 0)
		return
	}
	n.begins(r.ask.Block)
	n.waiting = append(n.waiting, r)
	if r.upload.Sending() {
		n.serve([]*chunk.Upload{&r.upload})
		return
	}
	n.check()
}

func (n *node) refuse(r *request, err error, after int64) {
	r.err = err
	n.w.later(after+n.w.latency(), event{kind: evRefused, node: r.by, req: r})
}

// check looks again while requests wait.
func (n *node) check() {
	if t := n.uploads.NextAt(); !n.checking && !t.IsZero() {
		n.checking = true
		n.w.later(max(t.UnixNano()-n.w.now, int64(5*time.Millisecond)), event{kind: evUploads, node: n})
	}
}

// serve begins to send.
func (n *node) serve(next []*chunk.Upload) {
	for _, u := range next {
		i := slices.IndexFunc(n.waiting, func(r *request) bool { return &r.upload == u })
		r := n.waiting[i]
		n.waiting = slices.Delete(n.waiting, i, i+1)
		n.serving = append(n.serving, r)
		r.flow = &flow{up: &n.up, down: &r.by.down, left: float64(r.ask.Bytes), req: r}
		n.w.net.add(r.flow, n.w.now)
	}
	n.check()
}

// sentAll notes that the last byte of a block has left.
func (n *node) sentAll(f *flow) {
	r := f.req
	n.w.net.remove(f, n.w.now)
	r.flow = nil
	n.sent += r.ask.Bytes
	r.crossed(r.ask.Bytes)
	n.serving = slices.DeleteFunc(n.serving, func(o *request) bool { return o == r })
	n.w.later(n.w.latency()+landing, event{kind: evLanded, node: r.by, req: r})
	n.serve(n.uploads.Done(&r.upload, n.w.time()))
}

// quit notes that a request is not served any more.
func (n *node) quit(r *request) {
	if r.flow != nil {
		f := r.flow
		left := f.left - f.rate*float64(n.w.now-f.at)/1e9
		n.sent += r.ask.Bytes - int64(left)
		r.crossed(r.ask.Bytes - int64(left))
		r.by.received += r.ask.Bytes - int64(left)
		n.w.net.remove(f, n.w.now)
		r.flow = nil
	}
	isReq := func(o *request) bool { return o == r }
	if slices.ContainsFunc(n.serving, isReq) || slices.ContainsFunc(n.waiting, isReq) {
		n.serving = slices.DeleteFunc(n.serving, isReq)
		n.waiting = slices.DeleteFunc(n.waiting, isReq)
		n.serve(n.uploads.Done(&r.upload, n.w.time()))
	}
}

// crossed counts bytes that came from another zone.
func (r *request) crossed(bytes int64) {
	if r.by.peer.Zone != r.to.peer.Zone {
		r.by.imported += bytes
	}
}
