package fs

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"
)

// Stats is a mount in numbers, since it was mounted unless said otherwise.
type Stats struct {
	OpenFiles         int // now, those that are being closed and published included
	OpenDirs          int // now
	Inodes            int // known to the kernel now
	PassthroughOpens  uint64
	PassthroughFailed uint64 // local files the kernel refused to read itself
	Handovers         uint64 // inodes handed over after their object became complete
	Reads             uint64 // READ requests answered by this process
	ReadBytes         uint64 // bytes of them
	Notices           uint64 // sent to the kernel
	Writes            uint64 // WRITE requests
	WrittenBytes      uint64 // bytes of them
	Publishes         uint64 // files published, or found to need none
	PublishesFailed   uint64

	Passthrough       string // PassthroughOn, PassthroughOff or PassthroughUnavailable
	PassthroughReason string // why not, or why not for some files; may be empty
	Consistency       string
}

// Stats returns the numbers as they are now.
func (f *FS) Stats() Stats {
	state, reason := f.passthrough.status()
	return Stats{
		OpenFiles:         f.handles.len() + int(f.closing.Load()),
		OpenDirs:          f.dirs.len(),
		Inodes:            f.table.inodes(),
		PassthroughOpens:  f.passthrough.opens.Load(),
		PassthroughFailed: f.passthrough.failed.Load(),
		Handovers:         f.handovers.Load(),
		Reads:             f.reads.Load(),
		ReadBytes:         f.readBytes.Load(),
		Notices:           f.notices.Load(),
		Writes:            f.writes.Load(),
		WrittenBytes:      f.writtenBytes.Load(),
		Publishes:         f.publishes.Load(),
		PublishesFailed:   f.publishesFailed.Load(),
		Passthrough:       state,
		PassthroughReason: reason,
		Consistency:       f.cfg.Consistency,
	}
}

// complain logs a request that is about to be answered by an error, unless its
// caller gave up or the error is a plain answer. A dead store or provider makes
// many of them: few are logged.
func (f *FS) complain(ctx context.Context, op, name string, err error) {
	if !isAnswer(byWriter(err)) {
		f.complainOfClose(ctx, op, name, err)
	}
}

// complainOfClose is complain where an answer, too, leaves bytes behind that are
// not published.
func (f *FS) complainOfClose(ctx context.Context, op, name string, err error) {
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return
	}
	if left, ok := f.complaints.allow(time.Now()); ok {
		f.log.Warn("request failed", "op", op, "name", name, "error", err, "not_shown", left)
	}
}

// Complaints in a burst, and how often a burst may come.
const (
	complaintBurst = 10
	complaintEvery = 10 * time.Second
)

// limiter lets a burst through in each period.
type limiter struct {
	mu      sync.Mutex
	since   time.Time
	count   int
	skipped int
}

// allow reports whether one more may pass, and how many did not before it.
func (l *limiter) allow(now time.Time) (skipped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.since) >= complaintEvery {
		l.since, l.count = now, 0
	}
	if l.count++; l.count > complaintBurst {
		l.skipped++
		return 0, false
	}
	skipped, l.skipped = l.skipped, 0
	return skipped, true
}

func stack() string { return string(debug.Stack()) }
