package chunk

import (
	"context"
	"sync"
	"time"
)

// LongestTurn bounds how long a request waits for its turn before it is told to
// ask elsewhere: whoever asked sees no byte meanwhile. A transport takes a
// request for stalled only well after that, connecting included: else those who
// wait in line at a node that lives would take it for dead.
const LongestTurn = 5 * time.Second

// longestLog bounds what is remembered of an object's sends.
const longestLog = 1 << 16

// Sends has Uploads decide about the requests that a node serves, and remembers
// for those who follow an object which of its blocks were sent. Safe for
// concurrent use; it starts no goroutine. The zero value is ready.
type Sends struct {
	mu      sync.Mutex
	uploads Uploads
	turns   map[*Upload]chan struct{} // of those that wait; closed when it is their turn
	logs    map[ObjectID]*sendLog
}

// sendLog is what was sent of an object while somebody followed it.
type sendLog struct {
	blocks    []int
	followers int
}

// Admit waits until the block may be sent, and returns what must be called once
// it has been, or has failed. A *Busy says that it may not; ctx's error that
// whoever asked has gone.
func (s *Sends) Admit(ctx context.Context, r Upload) (done func(), err error) {
	u := &r
	turn, err := s.ask(u)
	if err != nil {
		return nil, err
	}
	done = sync.OnceFunc(func() { s.done(u) })
	if turn == nil {
		return done, nil
	}
	end := time.NewTimer(LongestTurn)
	defer end.Stop()
	for {
		look := time.NewTimer(s.pause())
		select {
		case <-turn:
			look.Stop()
			return done, nil
		case <-look.C:
			s.next()
		case <-end.C:
			look.Stop()
			done()
			return nil, &Busy{Retry: time.Second}
		case <-ctx.Done():
			look.Stop()
			done()
			return nil, context.Cause(ctx)
		}
	}
}

// ask takes a request in; turn is nil if it may be sent at once.
func (s *Sends) ask(u *Upload) (turn chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.uploads.Ask(u, time.Now()); err != nil {
		return nil, err
	}
	s.log(u.Object, u.Block)
	if u.Sending() {
		return nil, nil
	}
	if s.turns == nil {
		s.turns = map[*Upload]chan struct{}{}
	}
	turn = make(chan struct{})
	s.turns[u] = turn
	return turn, nil
}

// Note remembers a block that was sent without Admit.
func (s *Sends) Note(o ObjectID, block int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log(o, block)
}

func (s *Sends) log(o ObjectID, block int) {
	if l := s.logs[o]; l != nil && len(l.blocks) < longestLog {
		l.blocks = append(l.blocks, block)
	}
}

func (s *Sends) done(u *Upload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.turns, u)
	s.call(s.uploads.Done(u, time.Now()))
}

func (s *Sends) next() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.call(s.uploads.Next(time.Now()))
}

// call tells those whose turn has come.
func (s *Sends) call(next []*Upload) {
	for _, u := range next {
		if turn := s.turns[u]; turn != nil {
			close(turn)
			delete(s.turns, u)
		}
	}
}

// pause returns when a waiting request should look whether its turn has come
// although nothing ended.
func (s *Sends) pause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.uploads.NextAt()
	if at.IsZero() {
		return time.Second
	}
	return min(max(time.Until(at), 10*time.Millisecond), time.Second)
}

// Follow has the sends of an object remembered until the returned function is
// called, once.
func (s *Sends) Follow(o ObjectID) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.logs[o]
	if l == nil {
		if s.logs == nil {
			s.logs = map[ObjectID]*sendLog{}
		}
		l = &sendLog{}
		s.logs[o] = l
	}
	l.followers++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if l.followers--; l.followers == 0 {
			delete(s.logs, o)
		}
	}
}

// Sent returns the blocks of an object that began to be sent since the given
// place in its log, and the place after them; 0 is the begin. Only those who
// follow may ask.
func (s *Sends) Sent(o ObjectID, from int) (blocks []int, next int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.logs[o]
	if l == nil || from >= len(l.blocks) {
		return nil, from
	}
	return append([]int(nil), l.blocks[from:]...), len(l.blocks)
}
