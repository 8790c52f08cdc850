package fs

import "sync"

// slots hands out numbers for open handles and finds them again.
type slots[T any] struct {
	mu   sync.RWMutex
	next uint64
	open map[uint64]T
}

// put stores a handle and returns its number, never 0.
func (s *slots[T]) put(h T) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[uint64]T{}
	}
	s.next++
	s.open[s.next] = h
	return s.next
}

// get returns the handle of a number, the zero T if there is none.
func (s *slots[T]) get(n uint64) T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.open[n]
}

// take removes a handle and returns it, the zero T if there is none.
func (s *slots[T]) take(n uint64) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.open[n]
	delete(s.open, n)
	return h
}

// takeAll removes every handle.
func (s *slots[T]) takeAll() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]T, 0, len(s.open))
	for _, h := range s.open {
		all = append(all, h)
	}
	clear(s.open)
	return all
}

// len returns how many handles are open.
func (s *slots[T]) len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.open)
}
