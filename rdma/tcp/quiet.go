package tcp

import (
	"sync"
	"time"
)

// quietFor is how long a quiet stays silent after it spoke.
const quietFor = time.Second

// quiet lets one of many like messages through now and then, so that a
// stranger cannot fill the log. The zero value is ready.
type quiet struct {
	mu     sync.Mutex
	next   time.Time
	unsaid int
}

// speak reports whether to speak now, and how many were left unsaid before.
func (q *quiet) speak(now time.Time) (unsaid int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now.Before(q.next) {
		q.unsaid++
		return 0, false
	}
	unsaid, q.unsaid = q.unsaid, 0
	q.next = now.Add(quietFor)
	return unsaid, true
}
