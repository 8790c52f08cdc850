package verbs

import (
	"slices"
	"sync"
)

// users knows how many fetch over a link at once. Safe for concurrent use. The
// zero value is ready.
type users struct {
	mu   sync.Mutex
	now  int
	last [8]int // how many there were when the last ones came
	next int
}

func (u *users) enter() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.now++
	u.last[u.next] = u.now
	u.next = (u.next + 1) % len(u.last)
}

func (u *users) leave() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.now--
}

// usual returns for how many of them it is worth while to wait.
func (u *users) usual() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return min(max(slices.Max(u.last[:]), 1), enoughSaid)
}
