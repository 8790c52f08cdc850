package verbs

import (
	"sync"
	"time"
)

// when says how soon a message has to go.
type when int

const (
	atOnce   when = iota // and all that waits with it
	soon                 // once nobody is busy who may have more to say, or enough wait
	whenever             // with others, or after lazyWait
)

const (
	// lazyWait bounds how long any message waits.
	lazyWait = time.Second
	// mostWaiting bounds how many do.
	mostWaiting = 64
)

// outbox collects the messages of one end of a link, so that several go in one
// frame: whoever is busy on the link will have something to say in a moment.
// Safe for concurrent use.
type outbox struct {
	send func(ms ...message)
	// enough messages that are to go soon go. Fewer wait for linger when nobody
	// is busy any more, if it is there, and for patience when somebody is, or
	// longer while moved changes.
	enough   func() int
	linger   func() time.Duration
	patience time.Duration
	moved    func() int64

	mu      sync.Mutex
	closed  bool
	waiting []message
	urgent  int // of those, how many are to go soon
	busy    int
	since   time.Time // the first one waits
	seen    int64     // by moved
	timer   *time.Timer
	lingers bool // the timer was set while nobody was busy
}

// add takes messages in, and sends what is due.
func (o *outbox) add(w when, ms ...message) {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return
	}
	now := time.Now()
	if len(o.waiting) == 0 {
		o.since = now
	}
	if w == soon && o.urgent == 0 && o.moved != nil {
		o.seen = o.moved()
	}
	o.waiting = append(o.waiting, ms...)
	if w == soon {
		o.urgent += len(ms)
	}
	out := o.due(w == atOnce)
	if out == nil {
		o.arm(now)
	}
	o.mu.Unlock()
	o.deliver(out)
}

// begin says that somebody is busy who may have something to say.
func (o *outbox) begin() {
	o.mu.Lock()
	o.busy++
	o.mu.Unlock()
}

// end says that one of them has said it.
func (o *outbox) end() {
	o.mu.Lock()
	o.busy--
	out := o.due(false)
	if out == nil && o.busy == 0 && o.urgent > 0 {
		o.arm(time.Now())
	}
	o.mu.Unlock()
	o.deliver(out)
}

// close drops what waits, and all that comes.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.waiting = true, nil
	if o.timer != nil {
		o.timer.Stop()
	}
}

func (o *outbox) deliver(out []message) {
	if len(out) > 0 {
		o.send(out...)
	}
}

// due takes out all that waits if it is to go. Called with mu held.
func (o *outbox) due(must bool) []message {
	if !must && len(o.waiting) < mostWaiting && (o.urgent == 0 || o.urgent < o.enough() && (o.busy > 0 || o.linger != nil)) {
		return nil
	}
	out := o.waiting
	o.waiting, o.urgent = nil, 0
	if o.timer != nil {
		o.timer.Stop()
	}
	return out
}

// arm has what waits looked at again. Called with mu held.
func (o *outbox) arm(now time.Time) {
	left := lazyWait - now.Sub(o.since)
	o.lingers = false
	switch {
	case o.urgent == 0:
	case o.busy == 0 && o.linger != nil:
		left = min(left, o.linger())
		o.lingers = true
	default:
		left = min(left, o.patience)
	}
	left = max(left, 0)
	if o.timer == nil {
		o.timer = time.AfterFunc(left, o.look)
		return
	}
	o.timer.Reset(left)
}

func (o *outbox) look() {
	o.mu.Lock()
	if o.closed || len(o.waiting) == 0 {
		o.mu.Unlock()
		return
	}
	now := time.Now()
	var out []message
	switch late := now.Sub(o.since) >= lazyWait; {
	case late:
		out = o.due(true)
	case o.urgent == 0, o.lingers && o.busy > 0:
		o.arm(now)
	case o.busy > 0 && o.moved != nil && o.moved() != o.seen:
		o.seen = o.moved()
		o.arm(now)
	default:
		out = o.due(true)
	}
	o.mu.Unlock()
	o.deliver(out)
}
