package chunk

// maxStreams is how many places of one object are read from at once, as far
// as read-ahead knows. More than that share.
const maxStreams = 8

// stream is one place an object is read at, and the way it goes.
type stream struct {
	at   int // block read last
	lean int // -2 to 2; below zero: backwards
	used uint64
}

// step returns the block d blocks further on the stream's way.
func (s stream) step(d int) int {
	if s.lean < 0 {
		return s.at - d
	}
	return s.at + d
}

// streams tells readers of one object apart by where they read: processes
// share handles, and one handle may be read at several places.
type streams struct {
	list  []stream
	clock uint64
}

// touch notes a read of block. A read near a stream moves it; one far from
// all of them starts another, in place of the one not used longest.
func (s *streams) touch(block, window int) {
	s.clock++
	best, dist := -1, window+1
	oldest := 0
	for i, t := range s.list {
		if d := max(t.at-block, block-t.at); d < dist {
			best, dist = i, d
		}
		if t.used < s.list[oldest].used {
			oldest = i
		}
	}
	if best >= 0 {
		s.list[best].move(block, s.clock)
		return
	}
	n := stream{at: block, used: s.clock}
	if len(s.list) < maxStreams {
		s.list = append(s.list, n)
		return
	}
	s.list[oldest] = n
}

// move leans by one step at a time: the kernel sends reads slightly out of
// order, which must not turn a reader around.
func (t *stream) move(block int, clock uint64) {
	switch {
	case block > t.at:
		t.lean = min(t.lean+1, 2)
	case block < t.at:
		t.lean = max(t.lean-1, -2)
	}
	t.at, t.used = block, clock
}
