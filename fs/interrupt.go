package fs

import (
	"context"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// fatalPoll is how often the thread behind an interrupted request is looked
// at. The kernel announces only the first signal, so a SIGKILL that follows a
// harmless one has to be found.
const fatalPoll = 50 * time.Millisecond

// call is the context of one request. Its handler calls end.
//
// An INTERRUPT alone does not end it. Go programs signal their own threads all
// the time and profilers do at 100 Hz; a page fault that is answered by EINTR
// is simply tried again, so honouring each signal would keep a slow block from
// ever arriving. The call ends when its thread is about to die or is gone.
//
// A request that never waits pays for no goroutine: the watcher starts with the
// first call of Done.
type call struct {
	parent   context.Context
	cancel   <-chan struct{} // closed by the first INTERRUPT
	tid      uint32          // thread in the kernel; 0 when not visible from here
	deadline time.Time
	fatal    func(tid uint32) bool

	mu   sync.Mutex
	done chan struct{}
	quit chan struct{} // ends the watcher; nil until it runs
	err  error
}

var _ context.Context = (*call)(nil)

// newCall returns the context of a request that may take until limit has
// passed.
func (f *FS) newCall(cancel <-chan struct{}, header *fuse.InHeader, limit time.Duration) *call {
	return &call{
		parent:   f.epoch.Load().ctx,
		cancel:   cancel,
		tid:      header.Pid,
		deadline: time.Now().Add(limit),
		fatal:    fatalPending,
	}
}

// newLasting is newCall for requests that must not be given up only because
// the mount is going: what they do not finish would be lost to their callers.
func (f *FS) newLasting(cancel <-chan struct{}, header *fuse.InHeader, limit time.Duration) *call {
	c := f.newCall(cancel, header, limit)
	c.parent = f.life.Load().ctx
	return c
}

// Deadline implements context.Context.
func (c *call) Deadline() (time.Time, bool) { return c.deadline, true }

// Value implements context.Context.
func (c *call) Value(any) any { return nil }

// Err implements context.Context.
func (c *call) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Done implements context.Context.
func (c *call) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		} else {
			c.quit = make(chan struct{})
			go c.watch(c.quit)
		}
	}
	return c.done
}

// end lets go of the call; what was derived from it ends too.
func (c *call) end() {
	c.finish(context.Canceled)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.quit != nil {
		close(c.quit)
		c.quit = nil
	}
}

// finish ends the call because of err, once.
func (c *call) finish(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	if c.done != nil {
		close(c.done)
	}
}

// watch ends the call when its time is up, the mount goes, or the thread that
// asked is dying.
func (c *call) watch(quit <-chan struct{}) {
	limit := time.NewTimer(time.Until(c.deadline))
	defer limit.Stop()
	interrupted := c.cancel
	var look <-chan time.Time
	for {
		select {
		case <-quit:
			return
		case <-c.parent.Done():
			c.finish(context.Canceled)
			return
		case <-limit.C:
			c.finish(context.DeadlineExceeded)
			return
		case <-interrupted:
			interrupted = nil
			tick := time.NewTicker(fatalPoll)
			defer tick.Stop()
			look = tick.C
		case <-look:
		}
		if look != nil && c.fatal(c.tid) {
			c.finish(context.Canceled)
			return
		}
	}
}
